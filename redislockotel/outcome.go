package redislockotel

import (
	"context"
	"errors"
	"fmt"

	"github.com/redislock/redislock"
)

// outcome is how a call of Obtain has ended: the values of the attribute of that name.
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

// isEnd reports whether it was ctx, or the end of the Client, that has ended a call. A call without a deadline that
// polls has one of its own: its end is a refusal, since the caller's ctx has not ended.
func isEnd(ctx context.Context, err error) bool {
	over := ctx.Err()
	return over != nil && errors.Is(err, over) || errors.Is(err, redislock.ErrClosed)
}

// errorType names the innermost error, for the attribute error.type.
func errorType(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return fmt.Sprintf("%T", err)
		}
		err = next
	}
}
