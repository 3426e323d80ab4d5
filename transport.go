package redislock

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script and the name it goes by: its hash on the server, its operation in errors.
type script struct {
	operation string
	eval      [2]any // EVAL and the source, boxed once instead of for each call
	evalsha   [2]any // EVALSHA and the hash

	joint     *script // for several calls that are simple; nil for none
	jointArgs int     // how many of ARGV it takes of each, from the first
}

func newScript(operation, source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{
		operation: operation,
		eval:      [2]any{"eval", source},
		evalsha:   [2]any{"evalsha", hex.EncodeToString(sum[:])},
	}
}

// node is one Redis that scripts are sent to: a server, a Cluster, a Ring, or what a type of the caller's own hides.
// But for what it learns about hooks and servers, it is immutable.
type node struct {
	scripter RedisClient
	unusable error // why nothing can be sent, if so

	// process sends one command of any kind. It is nil for a type of the caller's own, of which EvalSha and Eval are
	// all that may be called, and which does its own resending.
	process func(context.Context, redis.Cmder) error
	resends int // at most so many for one call
	single  *redis.Client
	cluster *redis.ClusterClient
	ring    *redis.Ring

	sharing atomic.Int32 // one of sharingUnknown, sharingAllowed and sharingForbidden
	reached atomic.Bool  // something was answered; until then, to ask a Cluster for the server of a key may hang
	servers servers

	// subscribe returns a subscription to nothing yet. It is nil where there is none that hears what scripts publish: a
	// Ring runs a script where its keys are, and subscribes where the channel is.
	subscribe func(context.Context) *redis.PubSub
}

// Whether calls may share round trips. A hook of the Redis client may rewrite the keys of a command, to put the name of a
// tenant before each, say. A shared round trip does not carry the values of each ctx, and on a Cluster and a Ring it goes
// past the client's own hooks, so the same key would be another one there. Whether there is such a hook is learned from
// calls by themselves; until the first of them has been answered, no calls share.
const (
	sharingUnknown int32 = iota
	sharingAllowed
	sharingForbidden // for good
)

// learn notes whether a command that was answered had the arguments that it was made with.
func (n *node) learn(unchanged bool) {
	switch {
	case !unchanged:
		n.sharing.Store(sharingForbidden)
	case n.sharing.Load() == sharingUnknown:
		n.sharing.CompareAndSwap(sharingUnknown, sharingAllowed)
	}
}

// separates reports whether every call has to go by itself, through the caller's client.
func (n *node) separates() bool { return n.sharing.Load() == sharingForbidden }

func newNode(client RedisClient, separate bool) *node {
	n := &node{scripter: client}
	if separate {
		n.sharing.Store(sharingForbidden)
	}
	none := client == nil
	switch client := client.(type) {
	case *redis.Client:
		if none = client == nil; !none {
			n.process, n.resends, n.single = client.Process, client.Options().MaxRetries, client
			listener := client
			if own := client.Options().ReadTimeout; own <= 0 || own > longTimeout {
				listener = client.WithTimeout(longTimeout) // it has not the caller's hooks, but what never ends is worse
			}
			n.subscribe = func(ctx context.Context) *redis.PubSub { return listener.Subscribe(ctx) }
		}
	case *redis.ClusterClient:
		if none = client == nil; !none {
			n.process, n.resends, n.cluster = client.Process, clusterResends(client.Options()), client
			n.subscribe = func(ctx context.Context) *redis.PubSub { return client.Subscribe(ctx) }
		}
	case *redis.Ring:
		if none = client == nil; !none {
			n.process, n.resends, n.ring = client.Process, client.Options().MaxRetries, client
		}
	case redis.Pipeliner:
		n.unusable = invalid("a %T queues scripts instead of running them; pass the client it was made from", client)
	}
	if none {
		n.unusable = invalid("the Redis client is nil")
	}
	return n
}

// clusterResends returns how often go-redis would try again on a Cluster: it counts redirections in place of retries,
// and has the retries of a single node off by default.
func clusterResends(opt *redis.ClusterOptions) int {
	return max(opt.MaxRetries, opt.MaxRedirects)
}

// do sends the call, by itself or together with others, and returns once that has ended, or ctx has. It reports whether
// the call has ended. If not, the call goes on; do not touch it before its done is closed.
func (n *node) do(ctx context.Context, c *call) bool {
	l, client := n.lane(c)
	switch {
	case l != nil && !l.admit(c, client): // it goes with others
	case ctx.Done() == nil:
		n.sendHere(c)
		return true
	default:
		// go-redis does not interrupt a read when ctx ends, so the caller waits beside it.
		c.done = make(chan struct{})
		go func() { // ends with the call
			growStack()
			defer close(c.done)
			n.send(c)
		}()
	}
	return c.await(ctx)
}

// growStack makes the stack of a new goroutine as large as go-redis needs. It would be copied several times otherwise, each
// time with more on it: a quarter of the client's CPU for a call.
//
//go:noinline
func growStack() {
	var frame [7 << 10]byte
	touch(&frame)
}

//go:noinline
func touch(frame *[7 << 10]byte) { frame[0] = 1 }

// send is sendHere in a goroutine of the library's own: where a hook panics, that is the error of the call.
func (n *node) send(c *call) {
	c.guard(func() { n.sendHere(c) })
}

// sendHere sends the call until it is answered, until resending is no use, or until nobody wants it any more. This is the
// one place where anything is resent; every script bears it.
func (n *node) sendHere(c *call) {
	n.sendFirst(c)
	n.resend(c)
}

func (n *node) sendFirst(c *call) {
	if c.lane != nil {
		defer c.lane.leave(c)
	}
	c.reply, c.err = n.once(c)
}

// resend sends a call again, by itself, for as long as that is of use.
func (n *node) resend(c *call) {
	for resends := 0; n.again(c, resends); resends++ {
		before := c.err
		c.reply, c.err = n.once(c)
		if over := c.ctx.Err(); over != nil && errors.Is(c.err, over) {
			c.err = before // the end of ctx says less than how the last sending has failed
		}
	}
}

// settle ends a call that has been sent with others, or goes on sending it by itself.
func (n *node) settle(c *call) {
	c.together = false
	if c.err == nil {
		close(c.done)
		return
	}
	go func() { // ends with the call
		defer close(c.done)
		c.guard(func() { n.resend(c) })
	}()
}

// again reports whether a call that has been resent so often is to be sent again, and waits until it is time.
func (n *node) again(c *call, resends int) bool {
	if c.err == nil {
		return false
	}
	if len(c.boxed) > len(c.keys) && len(c.keys) > 0 && redis.IsTryAgainError(c.err) {
		c.boxed = c.boxed[:len(c.keys)] // the slot moves to another node: a script with keys that do not exist is refused by both
		return true
	}
	answered := isRedisError(c.err)
	c.doubtful = c.doubtful || c.left && !answered
	switch {
	case n.process == nil, answered && !isPassing(c.err), errors.Is(c.err, redis.ErrClosed), c.dropped.Load():
		return false
	}
	if _, panicked := c.err.(*hookPanic); panicked {
		return false
	}
	if n.cluster != nil && !answered {
		n.cluster.ReloadState(c.ctx) // a master may have moved; go-redis looks only if it resends itself
	}
	wait := resendWait(resends)
	if resends >= n.resends && !c.persistent.Load() || !c.giveUp.IsZero() && time.Now().Add(wait).After(c.giveUp) {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// resendWait returns how long to wait before the resend with this number: 8 ms, doubled up to 4 s, less up to a half at
// random. go-redis begins alike.
func resendWait(resends int) time.Duration {
	most := 8 * time.Millisecond << min(resends, 9)
	return most - rand.N(most/2)
}

// once sends the call one time: by its hash, and if the server does not know that, with the whole script.
func (n *node) once(c *call) (any, error) {
	reply, err := n.command(c, c.script.evalsha)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = n.command(c, c.script.eval)
	}
	return reply, err
}

func (n *node) command(c *call, how [2]any) (any, error) {
	c.left = false
	if n.process == nil || c.token == "" { // nothing will tell when it leaves, so take it that it does now
		if err := c.leave(); err != nil {
			return nil, err
		}
	}
	if n.process == nil {
		args := c.args
		if c.token != "" {
			args = append([]any{c.token}, args...)
		}
		var keys []string
		for _, key := range c.appendKeys(nil) {
			keys = append(keys, key.(string))
		}
		if how[0] == c.script.eval[0] {
			return n.scripter.Eval(c.ctx, how[1].(string), keys, args...).Result()
		}
		return n.scripter.EvalSha(c.ctx, how[1].(string), keys, args...).Result()
	}
	cmd := newCommand(c, how)
	_ = n.process(c.ctx, cmd) // sets the error of cmd
	reply, err := cmd.Result()
	if err == nil && !n.reached.Load() {
		n.reached.Store(true)
	}
	if err == nil || isRedisError(err) {
		n.learn(c.isUnchanged(cmd, how))
	}
	return reply, err
}

// isRedisError reports whether err is an answer of the server, rather than a failure to get one.
func isRedisError(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// isPassing reports whether err is a server's way to say "not now": it did nothing, and may soon.
func isPassing(err error) bool {
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) ||
		redis.IsClusterDownError(err) || redis.IsTryAgainError(err) || redis.IsNoReplicasError(err) ||
		redis.IsMaxClientsError(err)
}
