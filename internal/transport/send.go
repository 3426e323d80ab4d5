package transport

import "context"

// Do sends the call, by itself or together with others, and returns when the call has finished or ctx has ended. It
// reports whether the call has finished. If it has not, the call goes on; do not touch it before its Done is closed. If a
// hook of the Redis client has panicked, Do panics with the same value.
func (r *Redis) Do(ctx context.Context, c *Call) bool {
	l, client := r.lane(c)
	switch {
	case l != nil && !l.admit(c, client): // the call is in the queue
	case ctx.Done() == nil && !c.Script.Reads:
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
		// Neither the end of ctx nor the watch interrupts a read in go-redis, so the call runs in a goroutine of its own.
		c.done = make(chan struct{})
		r.senders.send(c)
	}
	if !c.Wait(ctx) {
		c.uncount() // the call may hang for ever
		return false
	}
	c.rethrow()
	return true
}

// Go runs f in a goroutine whose stack is large enough for sending calls.
func Go(f func()) {
	go func() {
		growStack()
		f()
	}()
}

// Send sends the call by itself and returns when it has finished. It is for goroutines that no caller waits for: if a
// hook of the Redis client panics or calls runtime.Goexit, that becomes the error of the call.
func (r *Redis) Send(c *Call) {
	finished := make(chan struct{})
	Go(func() { // ends with the call; a Goexit ends this goroutine, and not the one that called Send
		defer close(finished)
		c.catch(func() { r.sendHere(c) })
	})
	<-finished
}
