package scan

import (
	"context"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/survey"
)

// Inspect returns all that is known of keys. Its errors can be printed.
func Inspect(ctx context.Context, s *connect.Session, keys []string) (all []show.Details, err error) {
	statuses, err := s.Inspect(ctx, keys)
	if err != nil {
		return nil, err
	}
	now, err := s.Client.Time(ctx).Result()
	if err != nil { // an ACL may forbid TIME
		now = time.Now()
	}
	for _, status := range statuses {
		d := show.Details{Status: survey.Read(status), Now: now}
		if d.Line, err = s.Line(ctx, status); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}
