package transport

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
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
	if len(c.Spare) > 0 && len(c.Keys) > 0 && redis.IsTryAgainError(c.Err) && !c.IsLost() {
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
	if errors.As(c.Err, &panicked) || r.process == nil || IsFinal(c.Err) {
		return false
	}
	if r.reload != nil && !answered {
		r.reload(c.Ctx) // a master may have moved; go-redis reloads only when it resends by itself
	}
	wait := resendWait(int(c.Resends))
	if int(c.Resends) >= r.resends && !c.persistent.Load() || !c.GiveUp.IsZero() && time.Now().Add(wait).After(c.GiveUp) {
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

// command sends one command for the call.
func (r *Redis) command(c *Call, how *[2]any) (any, error) {
	if c.IsLost() { // the command before has found that the server does not know the hash of the script
		c.departed = false
		return nil, errLost
	}
	c.departed = false
	c.state.Store(waiting)
	r.watch.begin(c, nil)
	defer r.watch.end(c)
	if r.process == nil || c.Token == "" { // MarshalBinary will not be called, so count the call as written now
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
	reply, err := r.landed(c, cmd.Cmd)
	c.command = nil
	r.noteAnswer(err, !c.changed && c.isUnchanged(cmd.Args()))
	return reply, err
}

// landed returns the result of a command that the Redis client has sent for the call.
func (r *Redis) landed(c *Call, cmd *redis.Cmd) (any, error) {
	c.land()
	reply, err := cmd.Result()
	if err == nil {
		r.watch.answered(c.Sent)
	}
	return reply, c.sortOut(c.sending(), err)
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

// eval does the work of command for a client on which only EvalSha and Eval may be called.
func (r *Redis) eval(c *Call, how *[2]any) (reply any, err error) {
	var args []any
	if c.Token != "" {
		args = append(args, c.Token)
	}
	args = append(append(args, c.args()...), c.Script.endArgs...)
	var keys []string
	for _, some := range [][]any{c.Keys, c.Spare, c.Script.endKeys} {
		for _, key := range some {
			keys = append(keys, key.(string))
		}
	}
	if r.hollow != "" {
		defer func() {
			switch value := recover().(type) {
			case nil:
			case runtime.Error: // the client has used the nil
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
	reply, err = r.landed(c, cmd)
	// The client may have made this command from other keys, or the command may say nothing about keys.
	sent := cmd.Args()
	r.noteAnswer(err, len(sent) >= 3 && c.hasKeys(sent[3:]))
	return reply, err
}
