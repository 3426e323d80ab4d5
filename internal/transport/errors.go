package transport

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/answer"
)

// IsAnswer reports whether err is an answer of the server, and not a failure to get one.
func IsAnswer(err error) bool { return answer.Is(err) }

// IsFinal reports whether the same call cannot succeed later: the server has answered something other than "not now",
// or the Redis client is closed.
func IsFinal(err error) bool {
	return IsAnswer(err) && !answer.IsPassing(err) || errors.Is(err, redis.ErrClosed)
}

// HasCode reports whether err is an answer of the server with that code, for example NOPERM.
func HasCode(err error, code string) bool { return redis.HasErrorPrefix(err, code) }
