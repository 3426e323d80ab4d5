package worker

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
)

// conclude writes into an event how its call has ended, unless the event says that already.
func conclude(e *history.Event, err error, good string) {
	if e.Outcome == "" {
		var code string
		if e.Outcome, code = outcomeOf(err, good); code != "" {
			e.Options = append(e.Options, "error:"+code)
		}
	}
	if err != nil && (e.Outcome == "unexpected" || e.Outcome == "unknown" || e.Outcome == "network") {
		e.Target = word(err.Error())
	}
}

// outcomeOf says in one word how a call has ended, and which error of Redis it met, if it did.
func outcomeOf(err error, good string) (outcome, code string) {
	code = codeOf(err)
	var some *redislock.LostError
	switch {
	case err == nil:
		return good, ""
	case errors.Is(err, redislock.ErrClosed):
		return "closed", ""
	case errors.Is(err, redislock.ErrInvalid):
		return "unexpected", "INVALID"
	case errors.Is(err, redislock.ErrDeadlock):
		return "deadlock", ""
	case errors.Is(err, redislock.ErrLapsed):
		return "lapsed", code
	case errors.As(err, &some), errors.Is(err, redislock.ErrLockNotHeld):
		return "lost", code
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout", code
	case errors.Is(err, context.Canceled):
		return "canceled", code
	case errors.Is(err, redislock.ErrNotObtained):
		return "refused", code
	case strings.Contains(err.Error(), "the guard"): // it executes no renewals, or too many servers of a quorum are closed
		return "guard", code
	case strings.Contains(err.Error(), "lost again at once"): // a server forgot before its fence counter was raised
		return "lost", code
	case strings.Contains(err.Error(), "nobody knows whether the keys were lost"): // of a Release at a quorum
		return "unknown", code
	case code != "":
		return "redis", code
	case isNetwork(err):
		return "network", ""
	}
	return "unexpected", "OTHER"
}

// codeOf returns the first word of an error of the server, as in "LOADING Redis is loading the dataset in memory".
func codeOf(err error) string {
	var answer interface { // go-redis has such errors, and so has package adapter
		error
		RedisError()
	}
	if !errors.As(err, &answer) {
		return ""
	}
	code, _, _ := strings.Cut(answer.Error(), " ")
	return word(code)
}

func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || strings.Contains(err.Error(), "no answer") ||
		strings.Contains(err.Error(), "does not answer") ||
		strings.Contains(err.Error(), "connection") || strings.Contains(err.Error(), "broken pipe")
}

// word replaces the characters that a history cannot hold.
func word(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == ',' || r == ';' || r == '=' {
			return '_'
		}
		return r
	}, text[:min(len(text), 300)])
}

// isLoss reports whether an error says that keys of a lock were lost.
func isLoss(err error) bool {
	var some *redislock.LostError
	return errors.As(err, &some) || errors.Is(err, redislock.ErrLockNotHeld)
}

// timeOf converts t to CLOCK_MONOTONIC. The process may stand still between the readings of the two clocks, so it
// returns two times: t is no earlier than the first, and no later than the second.
func timeOf(t time.Time, now func() int64) (early, late int64) {
	before := now()
	left := time.Until(t)
	after := now()
	return before + int64(left), after + int64(left)
}
