package transport

import (
	"errors"
	"math/rand/v2"
	"time"
)

// resend sends a call again, by itself, as long as that is of use. Nothing else resends, except DoAnew.
func (r *Redis) resend(c *Call) {
	for r.again(c) {
		before := c.Err
		c.Resends++
		c.Reply, c.Err = r.once(c)
		if over := c.Ctx.Err(); over != nil && errors.Is(c.Err, over) {
			c.Doubtful = c.Doubtful || c.departed // again looks only at the error that the next line restores
			c.Err = before                        // which says more than the end of Ctx
		}
	}
}

// finish ends a call that was sent once, or goes on to resend it by itself.
func (r *Redis) finish(c *Call) {
	c.bulk = false
	if c.Err == nil {
		c.Finish()
		return
	}
	go func() { // ends with the call
		defer c.Finish()
		c.catch(func() { r.resend(c) })
	}()
}

// again reports whether to resend a call, and waits until it is time.
func (r *Redis) again(c *Call) bool {
	if c.Err == nil {
		return false
	}
	if len(c.Spare) > 0 && len(c.Keys) > 0 && HasCode(c.Err, "TRYAGAIN") && !c.IsLost() {
		c.Spare = nil // the slot is moving, and both nodes refuse a script some of whose keys do not exist
		return true
	}
	failure := c.Err
	c.failure.Store(&failure)
	answered := IsAnswer(c.Err)
	c.Doubtful = c.Doubtful || c.departed && !answered
	var panicked *hookPanicError
	if c.IsLost() { // nobody waits for it any more, and an error may only say that the server wants it elsewhere
		c.Err = errLost
		return false
	}
	if errors.As(c.Err, &panicked) || r.Opaque || IsFinal(c.Err) {
		return false
	}
	if r.Reach == Slots && !answered {
		r.conn.Reload(c.Ctx) // a master may have moved; go-redis reloads only when it resends by itself
	}
	wait := resendWait(int(c.Resends))
	if int(c.Resends) >= r.Resends && !c.persistent.Load() || !c.GiveUp.IsZero() && time.Now().Add(wait).After(c.GiveUp) {
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

// ResendWait returns how long to wait before the next sending of a call that has failed after all its resends, and then
// so many times more.
func (r *Redis) ResendWait(times int) time.Duration { return resendWait(r.Resends + times) }

// resendWait returns how long to wait before the resend with this number: 8 ms, doubled each time up to 4 s, and
// shortened by up to a half at random. The first waits are like those of go-redis.
func resendWait(resends int) time.Duration {
	most := 8 * time.Millisecond << min(resends, 9)
	return most - rand.N(most/2)
}

// once sends the call one time.
func (r *Redis) once(c *Call) (any, error) {
	return try(func(whole bool) (any, error) { return r.command(c, whole) })
}

// try sends a script by its hash and, if the server does not know that, as a whole.
func try(send func(whole bool) (any, error)) (any, error) {
	reply, err := send(false)
	if err != nil && HasCode(err, "NOSCRIPT") {
		reply, err = send(true)
	}
	return reply, err
}

// command sends one command for the call.
func (r *Redis) command(c *Call, whole bool) (any, error) {
	if c.IsLost() { // the command before has found that the server does not know the hash of the script
		c.departed = false
		return nil, errLost
	}
	c.departed, c.Rewritten = false, false
	c.state.Store(waiting)
	r.watch.begin(c, nil)
	defer r.watch.end(c)
	reply, err := r.conn.Send(c.sending(), c, whole)
	c.land()
	if err == nil {
		r.watch.answered(c.Sent)
	}
	err = c.sortOut(c.sending(), err)
	r.noteAnswer(err, !c.Rewritten)
	return reply, err
}

// noteAnswer notes what the end of a call that went by itself says about the Redis: that it can be reached, and whether
// a hook has rewritten the arguments of the call.
func (r *Redis) noteAnswer(err error, unchanged bool) {
	if err == nil && !r.reached.Load() {
		r.reached.Store(true)
	}
	if err == nil || IsAnswer(err) {
		r.learn(unchanged)
	}
}
