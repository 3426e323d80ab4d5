package redislockotel

import (
	"context"
	"errors"
	"fmt"

	"github.com/redislock/redislock"
)

// outcome returns how a call of Obtain has ended, as the value of the attribute outcome.
func outcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "obtained"
	case isEnd(ctx, err):
		return "canceled"
	case errors.Is(err, redislock.ErrNotObtained):
		return "refused"
	}
	return "error"
}

// isEnd reports whether the end of ctx, or Close, has ended a call. A call that retries without a deadline on its ctx
// gives up after one ttl. That is a refusal, because the caller's ctx has not ended.
func isEnd(ctx context.Context, err error) bool {
	over := ctx.Err()
	return over != nil && errors.Is(err, over) || errors.Is(err, redislock.ErrClosed)
}

// errorType returns the type of the innermost error, for the attribute error.type.
func errorType(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return fmt.Sprintf("%T", err)
		}
		err = next
	}
}
