package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/script"
)

// Waiter is one waiter in the line of a key; see [Client.Line].
type Waiter struct {
	Token    string    // of the lock that it waits for
	Metadata string    // the first 1,024 bytes of that lock's metadata
	Since    time.Time // about when it came, by the server's clock; on one server, different for each waiter of a line
	Late     bool      // it has missed a sign of life, and may be passed over soon
}

// Line returns the waiters in line for the key, in the order in which they will be served; see [Options.Queue]. It
// omits waiters that are passed over, until they show a sign of life again. It changes nothing, and its result may be
// out of date when it returns.
//
// Of a quorum, it returns the waiters that a majority of the servers have in line. For a key that can have no line, it
// returns none.
//
// Line blocks until Redis answers or ctx ends. It returns an error that wraps [ErrInvalid] for a key that cannot be a
// lock, [ErrClosed] after Close, an error that wraps ctx.Err() if ctx ended first, and any error of Redis, wrapped.
func (c *Client) Line(ctx context.Context, key string) ([]Waiter, error) {
	keys := []string{key}
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	var found []script.Waiter
	var err error
	if c.quorum != nil {
		found, err = c.quorum.line(ctx, key)
	} else {
		found, err = c.one.Waiters(ctx, key)
	}
	var waiters []Waiter
	for _, w := range found {
		waiters = append(waiters, Waiter(w))
	}
	return waiters, err
}
