package transport

import "context"

// Do sends the call, by itself or together with others, and returns when the call has finished or ctx has ended. It
// reports whether the call has finished. If it has not, the call goes on; do not touch it before its Done is closed. If a
// hook of the Redis client has panicked, Do panics with the same value.
func (r *Redis) Do(ctx context.Context, c *Call) bool {
	l, client := r.lane(c)
	switch {
	case l != nil && !l.admit(c, client): // the call is in the queue
	case ctx.Done() == nil && (!c.leaves || r.watch.hasJustHeard()):
		c.leaves = false
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
		c.Plan()
		r.senders.send(c)
	}
	if !r.await(ctx, c) {
		r.watch.keep(c)
		c.uncount() // the call may hang for ever
		return false
	}
	c.rethrow()
	return true
}

// await waits until the call has finished, ctx has ended or, if Do leaves it, it is lost. It reports whether the call has
// finished. If it was lost, only a reply counts, and no error: nothing more was sent for it.
func (r *Redis) await(ctx context.Context, c *Call) bool {
	if !c.leaves {
		return c.Wait(ctx)
	}
	for {
		losses := *r.watch.losses.Load()
		select {
		case <-c.done:
			return !c.IsLost() || c.Err == nil
		default:
		}
		if c.IsLost() {
			return false
		}
		select {
		case <-c.done:
		case <-losses:
		case <-ctx.Done():
			return c.Wait(ctx) && (!c.IsLost() || c.Err == nil)
		}
	}
}

// mostLosses is how often DoAnew sends a copy. A server may answer a PING and no script for a while, as during CLIENT PAUSE:
// then the last copy waits.
const mostLosses = 2

// DoAnew is Do for a call that may also be executed late, after another one for the same purpose. If its connection has died
// without a sign, DoAnew sends a copy at once, and goes on with that. It first calls lost, unless that is nil, with the call
// that was lost and the copy. Until the call has finished, it may still be executed, but nothing more is sent for it. DoAnew
// returns the last call, and whether that has finished.
func (l *Link) DoAnew(ctx context.Context, c *Call, lost func(left, next *Call)) (*Call, bool) {
	for losses := 0; ; losses++ {
		c.leaves = losses < mostLosses
		switch {
		case l.Do(ctx, c):
			return c, true
		case !c.IsLost() || ctx.Err() != nil:
			return c, false
		}
		next := c.anew()
		if lost != nil {
			lost(c, next)
		}
		c = next
	}
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
