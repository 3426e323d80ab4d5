package connect

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/answer"
)

// IsAway reports whether an error is one that passes when Redis comes back: nothing listens, nobody answers, or the server
// says "not now". A wrong password, a wrong name or a wrong kind of server does not pass.
func IsAway(err error) bool {
	if answer.Is(err) && !errors.Is(err, redis.Nil) {
		return answer.IsPassing(err)
	}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case isDNS:
		return dns.IsTemporary || dns.IsTimeout
	case meaningOfTLS(err) != "":
		return false
	case errors.Is(err, context.DeadlineExceeded), isNetwork && network.Timeout():
		return true
	}
	for _, passing := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		io.EOF, io.ErrUnexpectedEOF,
		os.ErrNotExist, // the socket of a server that does not run
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	const noSentinel = "all sentinels specified in configuration are unreachable" // redis.Nil: they answer, but know no master
	return strings.Contains(err.Error(), noSentinel) && !errors.Is(err, redis.Nil)
}

// IsSilent reports whether an error says no more than that nobody answered in time.
func IsSilent(err error) bool {
	network, isNetwork := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, syscall.ECONNREFUSED) || isNetwork && network.Timeout()
}
