package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// Do sends the call, by itself or together with others, and returns when the call has finished or ctx has ended. It
// reports whether the call has finished. If not, the call goes on; do not touch it before its Done is closed. If a hook of
// the Redis client has panicked, Do panics with the same value.
func (r *Redis) Do(ctx context.Context, c *Call) bool {
	l, client := r.lane(c)
	switch {
	case l != nil && !l.admit(c, client): // it is in the queue
	case ctx.Done() == nil:
		returned := false
		defer func() {
			if !returned { // a hook has panicked
				c.Doubtful = c.Doubtful || c.departed
			}
		}()
		r.sendHere(c)
		returned = true
		return true
	default:
		// The end of ctx does not interrupt a read in go-redis, so the call runs in a goroutine of its own.
		c.done = make(chan struct{})
		r.senders.send(c)
	}
	if !c.Wait(ctx) {
		c.uncount() // it may hang forever
		return false
	}
	c.rethrow()
	return true
}

// Go runs f in a goroutine of its own, which is prepared for sending calls.
func Go(f func()) {
	go func() {
		growStack()
		f()
	}()
}

// growStack makes the stack of a new goroutine as large as go-redis needs. Otherwise the runtime would copy the stack
// several times while it grows: a quarter of the client's CPU time for a call.
//
//go:noinline
func growStack() {
	var frame [7 << 10]byte
	touch(&frame)
}

//go:noinline
func touch(frame *[7 << 10]byte) { frame[0] = 1 }

// Send sends the call by itself and returns when it has finished. It is for goroutines that no caller waits for: if a
// hook of the Redis client panics or calls runtime.Goexit, that becomes the error of the call.
func (r *Redis) Send(c *Call) {
	finished := make(chan struct{})
	Go(func() { // ends with the call; a Goexit ends this goroutine, and not the one that called Send
		defer close(finished)
		c.guard(func() { r.sendHere(c) })
	})
	<-finished
}

// sendHere sends the call until it is answered, resending is of no use, or nobody wants the call any more. Nothing is
// resent anywhere else.
func (r *Redis) sendHere(c *Call) {
	r.sendFirst(c)
	r.resend(c)
}

func (r *Redis) sendFirst(c *Call) {
	if c.lane != nil {
		defer c.lane.endTrip(c)
	}
	c.Reply, c.Err = r.once(c)
}

// resend sends a call again, by itself, as long as that is of use.
func (r *Redis) resend(c *Call) {
	for resends := 0; r.again(c, resends); resends++ {
		before := c.Err
		c.Resends++
		c.Reply, c.Err = r.once(c)
		if over := c.Ctx.Err(); over != nil && errors.Is(c.Err, over) {
			c.Doubtful = c.Doubtful || c.departed // again looks only at the error below
			c.Err = before                        // this says more than the end of Ctx
		}
	}
}

// finish ends a call that was sent with others, or goes on to resend it by itself.
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

// again reports whether to resend a call that was resent so many times before, and waits until it is time.
func (r *Redis) again(c *Call, resends int) bool {
	if c.Err == nil {
		return false
	}
	if len(c.Spare) > 0 && len(c.Keys) > 0 && redis.IsTryAgainError(c.Err) {
		c.Spare = nil // the slot is moving, and both nodes refuse a script some of whose keys do not exist
		return true
	}
	failure := c.Err
	c.failure.Store(&failure)
	answered := IsAnswer(c.Err)
	c.Doubtful = c.Doubtful || c.departed && !answered
	var panicked *hookPanicError
	if errors.As(c.Err, &panicked) || r.process == nil || IsFinal(c.Err) {
		return false
	}
	if r.reload != nil && !answered {
		r.reload(c.Ctx) // a master may have moved; go-redis reloads only when it resends by itself
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
	case <-c.Hurry:
		return true
	case <-c.Ctx.Done():
		return false
	}
}

// ResendWait returns how long to wait before the next sending of a call that has failed after all its resends and,
// since then, this many times more.
func (r *Redis) ResendWait(times int) time.Duration { return resendWait(r.resends + times) }

// resendWait returns how long to wait before the resend with this number: 8 ms, doubled each time up to 4 s, and
// shortened by up to a half at random. The first waits are like those of go-redis.
func resendWait(resends int) time.Duration {
	most := 8 * time.Millisecond << min(resends, 9)
	return most - rand.N(most/2)
}

// once sends the call one time.
func (r *Redis) once(c *Call) (any, error) {
	return c.Script.try(func(how *[2]any) (any, error) { return r.command(c, how) })
}

// try sends a script by its hash and, if the server does not know that, as a whole.
func (s *Script) try(send func(how *[2]any) (any, error)) (any, error) {
	reply, err := send(&s.evalsha)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = send(&s.eval)
	}
	return reply, err
}

func (r *Redis) command(c *Call, how *[2]any) (any, error) {
	c.departed = false
	if r.process == nil || c.Token == "" { // nothing tells when it is written, so count it as written now
		if err := c.depart(); err != nil {
			return nil, err
		}
	}
	if r.process == nil {
		return r.eval(c, how)
	}
	cmd := newCommand(c, how)
	c.command, c.whole, c.changed = cmd.Cmd, how == &c.Script.eval, false
	_ = r.process(c.sending(), cmd) // sets the error of cmd
	c.command = nil
	reply, err := cmd.Result()
	r.noteAnswer(err, !c.changed && c.isUnchanged(cmd.Args()))
	return reply, err
}

// noteAnswer notes what the end of a call that went by itself says about the Redis: that it can be reached, and whether
// the call still had the arguments that it was made with.
func (r *Redis) noteAnswer(err error, unchanged bool) {
	if err == nil && !r.reached.Load() {
		r.reached.Store(true)
	}
	if err == nil || IsAnswer(err) {
		r.learn(unchanged)
	}
}

// eval does the work of command for a client on which only EvalSha and Eval may be called.
func (r *Redis) eval(c *Call, how *[2]any) (reply any, err error) {
	args := c.args()
	if c.Token != "" {
		args = append([]any{c.Token}, args...)
	}
	var keys []string
	for _, some := range [][]any{c.Keys, c.Spare} {
		for _, key := range some {
			keys = append(keys, key.(string))
		}
	}
	if r.hollow != "" {
		defer func() {
			switch value := recover().(type) {
			case nil:
			case runtime.Error: // it has used the nil
				reply, err = nil, &NilError{r.hollow}
			default:
				panic(value)
			}
		}()
	}
	send := r.scripter.EvalSha
	if how[0] == c.Script.eval[0] {
		send = r.scripter.Eval
	}
	cmd := send(c.sending(), how[1].(string), keys, args...)
	reply, err = cmd.Result()
	// The command that comes back may be one that the client has made from other keys, or it says nothing about keys.
	sent := cmd.Args()
	kept := len(sent) >= 3 && startsWith(sent[3:], c.Keys) && startsWith(sent[min(3+len(c.Keys), len(sent)):], c.Spare)
	r.noteAnswer(err, kept)
	return reply, err
}
