package transport

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

// IsAnswer reports whether err is an answer of the server, and not a failure to get one.
func IsAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// IsFinal reports whether the same call cannot succeed later: the server has answered something other than "not now",
// or the Redis client is closed.
func IsFinal(err error) bool {
	return IsAnswer(err) && !isPassing(err) || errors.Is(err, redis.ErrClosed)
}

// HasCode reports whether err is an answer of the server with that code, for example NOPERM.
func HasCode(err error, code string) bool { return redis.HasErrorPrefix(err, code) }

// isPassing reports whether err is a server's "not now": it did nothing, but may do so soon.
func isPassing(err error) bool {
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) ||
		redis.IsClusterDownError(err) || redis.IsTryAgainError(err) || redis.IsNoReplicasError(err) ||
		redis.IsMaxClientsError(err) || redis.HasErrorPrefix(err, "BUSY")
}
