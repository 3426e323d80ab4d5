package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

// NotHeld returns the error for a token that does not hold all keys, in words that begin with what was not done: it says who
// holds the first key that the token does not hold. It returns other errors with their exit code.
func NotHeld(ctx context.Context, s *connect.Session, what string, keys []string, token string, why error) error {
	if !errors.Is(why, redislock.ErrLockNotHeld) {
		return s.Refusal(why)
	}
	statuses, err := s.Inspect(ctx, keys)
	if err != nil {
		return err
	}
	for _, status := range statuses {
		switch {
		case status.TTL == 0:
			return fmt.Errorf("%s: %q is free", what, status.Key)
		case status.Token != token:
			return fmt.Errorf("%s: %q is held by %s", what, status.Key, show.Holder(status))
		}
	}
	return fmt.Errorf("%s: %w", what, why)
}
