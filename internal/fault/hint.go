package fault

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/redislock/redislock/internal/answer"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// WithHint adds to an error of Redis or the network what the error means and how to fix it, if its text does not say so.
func WithHint(keys []string, err error) error {
	if hint := hintFor(keys, err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

func hintFor(keys []string, err error) string {
	var connecting *transport.ConnectTimeoutError
	switch line := keyname.LineOf(keys[0]); {
	case line != "" && transport.HasCode(err, "NOPERM") && strings.Contains(err.Error(), "key"):
		return fmt.Sprintf("the user needs rights to the keys of the lock, to their lines, like %q, and under WithGuard to %q",
			line, keyname.GuardMarker)
	case transport.HasCode(err, "CROSSSLOT"):
		return hintForSlots(keys)
	case transport.IsAnswer(err):
		switch m := answer.MeaningOf(err); {
		case m.What == "":
		case m.Quotes: // the answer, which follows anyway
			return m.Program
		default:
			return m.What + "; " + m.Program
		}
	case errors.As(err, &connecting):
		return "no connection in time; does the server speak TLS on this port, and does a firewall let you through?"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the connection was closed; does the server speak TLS? Then set TLSConfig in redis.Options, or write rediss://"
	}
	return ""
}

func hintForSlots(keys []string) string {
	for _, key := range keys {
		if first, other := transport.Slot(keys[0]), transport.Slot(key); first != other {
			return fmt.Sprintf("%q is in slot %d and %q in slot %d; give all keys of a lock one hash tag, "+
				"as in {order:7}:stock, or pass a *redis.ClusterClient and set AcrossSlots", keys[0], first, key, other)
		}
	}
	return ""
}
