package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// Do sends the call, by itself or together with others, and returns once that has finished, or ctx has ended. It
// reports whether the call has finished. If not, the call goes on; do not touch it before its Done is closed.
func (r *Redis) Do(ctx context.Context, c *Call) bool {
	l, client := r.lane(c)
	switch {
	case l != nil && !l.admit(c, client): // it goes with others
	case ctx.Done() == nil:
		returned := false
		defer func() {
			if !returned { // a hook has panicked
				c.Doubtful = c.Doubtful || c.left
			}
		}()
		r.sendHere(c)
		returned = true
		return true
	default:
		// go-redis does not interrupt a read when ctx ends, so the caller waits beside it.
		c.done = make(chan struct{})
		go func() { // ends with the call
			growStack()
			defer close(c.done)
			c.guard(func() { r.sendHere(c) })
		}()
	}
	finished := c.Await(ctx)
	if !finished {
		c.uncount() // it may hang for ever
	}
	return finished
}

// growStack makes the stack of a new goroutine as large as go-redis needs. It would be copied several times otherwise,
// each time with more on it: a quarter of the client's CPU for a call.
//
//go:noinline
func growStack() {
	var frame [7 << 10]byte
	touch(&frame)
}

//go:noinline
func touch(frame *[7 << 10]byte) { frame[0] = 1 }

// Send sends the call by itself and returns when it has finished. It is for goroutines that no caller waits for: where
// a hook of the Redis client panics or calls runtime.Goexit, that is the error of the call.
func (r *Redis) Send(c *Call) {
	finished := make(chan struct{})
	go func() { // ends with the call; a Goexit ends this goroutine and not that of Send
		growStack()
		defer close(finished)
		c.guard(func() { r.sendHere(c) })
	}()
	<-finished
}

// sendHere sends the call until it is answered, until resending is no use, or until nobody wants it any more. This is
// the one place where anything is resent.
func (r *Redis) sendHere(c *Call) {
	r.sendFirst(c)
	r.resend(c)
}

func (r *Redis) sendFirst(c *Call) {
	if c.lane != nil {
		defer c.lane.leave(c)
	}
	c.Reply, c.Err = r.once(c)
}

// resend sends a call again, by itself, for as long as that is of use.
func (r *Redis) resend(c *Call) {
	for resends := 0; r.again(c, resends); resends++ {
		before := c.Err
		c.Resends++
		c.Reply, c.Err = r.once(c)
		if over := c.Ctx.Err(); over != nil && errors.Is(c.Err, over) {
			c.Err = before // the end of Ctx says less than how the last sending has failed
		}
	}
}

// finish ends a call that has been sent with others, or goes on sending it by itself.
func (r *Redis) finish(c *Call) {
	c.bulk = false
	if c.Err == nil {
		close(c.done)
		return
	}
	go func() { // ends with the call
		defer close(c.done)
		c.guard(func() { r.resend(c) })
	}()
}

// again reports whether a call that has been resent so often is to be sent again, and waits until it is time.
func (r *Redis) again(c *Call, resends int) bool {
	if c.Err == nil {
		return false
	}
	if len(c.Spare) > 0 && len(c.Keys) > 0 && redis.IsTryAgainError(c.Err) {
		c.Spare = nil // the slot moves to another node: a script with keys that do not exist is refused by both
		return true
	}
	answered := IsAnswer(c.Err)
	c.Doubtful = c.Doubtful || c.left && !answered
	var panicked *hookPanicError
	if errors.As(c.Err, &panicked) || r.process == nil || IsFinal(c.Err) || c.dropped.Load() {
		return false
	}
	if r.cluster != nil && !answered {
		r.cluster.ReloadState(c.Ctx) // a master may have moved; go-redis looks only if it resends itself
	}
	wait := resendWait(resends)
	if resends >= r.resends && !c.persistent.Load() || !c.GiveUp.IsZero() && time.Now().Add(wait).After(c.GiveUp) {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.Ctx.Done():
		return false
	}
}

// ResendWait returns how long to wait before sending a call once more that has failed after all its resends, and that
// many times more.
func (r *Redis) ResendWait(times int) time.Duration { return resendWait(r.resends + times) }

// resendWait returns how long to wait before the resend with this number: 8 ms, doubled up to 4 s, less up to a half at
// random. go-redis begins alike.
func resendWait(resends int) time.Duration {
	most := 8 * time.Millisecond << min(resends, 9)
	return most - rand.N(most/2)
}

// once sends the call one time: by its hash, and if the server does not know that, with the whole script.
func (r *Redis) once(c *Call) (any, error) {
	reply, err := r.command(c, c.Script.evalsha)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = r.command(c, c.Script.eval)
	}
	return reply, err
}

func (r *Redis) command(c *Call, how [2]any) (any, error) {
	c.left = false
	if r.process == nil || c.Token == "" { // nothing will tell when it is written, so take it that it is now
		if err := c.depart(); err != nil {
			return nil, err
		}
	}
	if r.process == nil {
		return r.eval(c, how)
	}
	cmd := newCommand(c, how)
	c.command, c.how, c.changed = cmd.Cmd, how, false
	_ = r.process(c.Ctx, cmd) // sets the error of cmd
	c.command = nil
	reply, err := cmd.Result()
	if err == nil && !r.reached.Load() {
		r.reached.Store(true)
	}
	if err == nil || IsAnswer(err) {
		r.learn(!c.changed && c.isUnchanged(cmd.Args(), how))
	}
	return reply, err
}

// eval is command for a client type of the caller's own.
func (r *Redis) eval(c *Call, how [2]any) (any, error) {
	args := c.Args
	if c.Token != "" {
		args = append([]any{c.Token}, args...)
	}
	var keys []string
	for _, some := range [][]any{c.Keys, c.Spare} {
		for _, key := range some {
			keys = append(keys, key.(string))
		}
	}
	if how[0] == c.Script.eval[0] {
		return r.scripter.Eval(c.Ctx, how[1].(string), keys, args...).Result()
	}
	return r.scripter.EvalSha(c.Ctx, how[1].(string), keys, args...).Result()
}
