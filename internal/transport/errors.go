package transport

import (
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock/internal/answer"
)

// IsAnswer reports whether err is an answer of the server, and not a failure to get one.
func IsAnswer(err error) bool { return answer.Is(err) }

// IsFinal reports whether the same call cannot succeed later: the server has answered something other than "not now" to
// it, or the Redis client is closed.
func IsFinal(err error) bool {
	return IsAnswer(err) && !answer.IsPassing(err) && !answer.IsLogin(err) || isClosed(err)
}

// sortOut returns the error of a sending of the call in such a form that its meaning shows.
func (c *Call) sortOut(ctx context.Context, err error) error {
	if (c.Token == "" || !c.departed) && answer.RefusesLogin(err) { // without a token, it only reads
		return &answer.LoginError{Err: err}
	}
	return ownTimeout(ctx, err)
}

// RefusesLogin reports whether an answer says that user or password is wrong. A server that answers so has executed nothing.
func RefusesLogin(err error) bool { return answer.RefusesLogin(err) }

// HasCode reports whether err is an answer of the server with that code, for example NOPERM.
func HasCode(err error, code string) bool { return answer.HasCode(err, code) }

// ClosedError is the error of a call through a client that its owner has closed.
type ClosedError struct{ Err error }

func (e *ClosedError) Error() string { return e.Err.Error() }
func (e *ClosedError) Unwrap() error { return e.Err }

func isClosed(err error) bool {
	_, is := errors.AsType[*ClosedError](err)
	return is
}

// NilError is the error of a call through a client of the caller's own type that embeds a nil and has used it. The error
// counts as an answer: nothing was sent, and no later call can succeed. Only a call shows whether the client uses the nil,
// because its type may declare all methods that the library calls.
type NilError struct{ What string }

func (e *NilError) Error() string { return e.What + " is nil" }

// RedisError makes the error look like an answer.
func (e *NilError) RedisError() {}

// ConnectTimeoutError is the error of a call for which go-redis could not connect in its own time. go-redis limits that
// with a ctx of its own, so its error matches context.DeadlineExceeded, which callers take for the end of theirs. This
// one does not.
type ConnectTimeoutError struct{ text string }

func (e *ConnectTimeoutError) Error() string { return e.text }

// Timeout is part of [net.Error].
func (e *ConnectTimeoutError) Timeout() bool { return true }

// Temporary is part of [net.Error].
func (e *ConnectTimeoutError) Temporary() bool { return true }

// ownTimeout returns err, the error of something that was sent with ctx, in such a form that it matches
// context.DeadlineExceeded only if ctx has ended.
func ownTimeout(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if deadline, has := ctx.Deadline(); ctx.Err() != nil || has && !time.Now().Before(deadline) {
		return err
	}
	return &ConnectTimeoutError{err.Error()}
}
