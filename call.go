package redislock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one script on its way to a node, with all its resends.
type call struct {
	script *script
	keys   []string
	boxed  []any  // the keys, and their lines if the script takes them: it does its main work without them, too
	fence  string // a key between the two; "" for none
	token  string // ARGV[1]; "" for a script that takes none
	args   []any  // the rest of ARGV; see arguments
	simple bool   // it may go in a joint script
	queues bool   // it is to have a place in line if it is refused

	renewal *renewal // what it is for, if it is one

	// These spare allocations: most calls need no more room.
	room      [7]any
	tokenRoom [24]byte

	// ctx is done when nobody wants the call any more. A call whose ctx is done is not sent again, nor for a first time.
	ctx context.Context
	// giveUp ends the resending; the zero time leaves it to the node's count.
	giveUp time.Time
	// persistent lets resending go on until giveUp, past the node's count. It may be set at any time.
	persistent atomic.Bool
	// dropped says that nobody wants the call any more, like the end of ctx. It may be set at any time.
	dropped atomic.Bool

	lane     *lane         // that it goes in; nil for none
	client   *redis.Client // of the lane's server
	trip     trip          // if it goes by itself in a lane
	together bool          // it is part of a pipeline, whose other calls an error of its own would end

	// The rest is written by the goroutine that sends the call. Others may read it once done is closed, or where there
	// is no done, once do has returned.
	reply    any
	err      error
	first    time.Time // when it first left; zero while it has not
	sent     time.Time // when it last left
	left     bool      // the present sending has reached a connection
	doubtful bool      // some sending may have been, or may yet be, executed without its reply having come
	done     chan struct{}
}

// arguments sets args.
func (c *call) arguments(args ...any) { c.args = append(c.room[:0], args...) }

// leave notes that the call is being written to a connection, after any wait for one. From here on a lost reply leaves
// doubt, and before it a call that nobody wants any more is dropped.
func (c *call) leave() error {
	if err := c.unwanted(); err != nil && !c.together {
		return err
	}
	c.left, c.sent = true, time.Now()
	if c.first.IsZero() {
		c.first = c.sent
	}
	return nil
}

// unwanted returns why nobody wants the call any more; nil if somebody does.
func (c *call) unwanted() error {
	if c.dropped.Load() {
		return errDropped
	}
	return c.ctx.Err()
}

var errDropped = errors.New("redislock: superseded")

// MarshalBinary makes the call an argument of its own command, in the place of the token: go-redis asks for it while it
// writes the command.
func (c *call) MarshalBinary() ([]byte, error) {
	return append(c.tokenRoom[:0], c.token...), c.leave()
}

// String is the token, for hooks that print commands.
func (c *call) String() string { return c.token }

// await waits for the end of a call that do has been given, but not past the end of ctx. It reports whether the call has
// ended. If a hook of the Redis client has panicked, await panics with the same value, as the call would have done in the
// caller's own goroutine.
func (c *call) await(ctx context.Context) bool {
	if c.done == nil {
		return true
	}
	if ctx.Done() == nil {
		<-c.done
		c.rethrow()
		return true
	}
	select {
	case <-c.done:
		c.rethrow()
		return true
	case <-ctx.Done():
	}
	select {
	case <-c.done: // both at once: an answer is worth more than an end
		c.rethrow()
		return true
	default:
		return false
	}
}

// command is a command that go-redis itself never resends.
type command struct{ *redis.Cmd }

// appendKeys appends all that stands in KEYS.
func (c *call) appendKeys(args []any) []any {
	args = append(args, c.boxed[:len(c.keys)]...)
	if c.fence != "" {
		args = append(args, c.fence)
	}
	return append(args, c.boxed[len(c.keys):]...)
}

func newCommand(c *call, how [2]any) command {
	const others = 5 // how, the number of keys, the fence key and the token
	args := make([]any, 3, others+len(c.boxed)+len(c.args))
	args = c.appendKeys(args)
	args[0], args[1], args[2] = how[0], how[1], len(args)-3
	if c.token != "" {
		args = append(args, c)
	}
	cmd := command{redis.NewCmd(c.ctx, append(args, c.args...)...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}

// isUnchanged reports whether the command still has the arguments that newCommand gave it. Hooks rewrite them in place.
func (c *call) isUnchanged(cmd command, how [2]any) bool {
	args := cmd.Args()
	keys := len(c.boxed)
	if c.fence != "" {
		keys++
	}
	if len(args) < 3+keys || args[0] != how[0] || args[1] != how[1] || args[2] != keys {
		return false
	}
	args = args[3:]
	same := func(wanted []any) bool {
		if len(args) < len(wanted) {
			return false
		}
		for i, arg := range wanted {
			if args[i] != arg {
				return false
			}
		}
		args = args[len(wanted):]
		return true
	}
	if !same(c.boxed[:len(c.keys)]) {
		return false
	}
	if c.fence != "" {
		if args[0] != c.fence {
			return false
		}
		args = args[1:]
	}
	if !same(c.boxed[len(c.keys):]) {
		return false
	}
	if c.token != "" {
		if len(args) == 0 || args[0] != any(c) {
			return false
		}
		args = args[1:]
	}
	return same(c.args) && len(args) == 0
}

// NoRetry is honoured by go-redis from v9.19 on.
func (command) NoRetry() bool { return true }
