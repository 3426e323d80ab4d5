package transport

import "sync"

// senders are the goroutines that send calls for callers who may leave before the answer. A goroutine that has sent its
// call waits for the next call as long as any other goroutine is sending: to grow the stack of a new one costs as much as
// a tenth of a call. The last goroutine to end also ends the waiting ones, so at rest there are none.
type senders struct {
	redis *Redis

	mu      sync.Mutex // protects the fields below
	sending int
	waiting []chan *Call // of goroutines that wait; each has room for one call, and is closed to end its goroutine
}

// maxWaiting bounds the goroutines that wait for a call.
const maxWaiting = 8

// send sends a call in a goroutine, which closes the call's done afterwards.
func (s *senders) send(c *Call) {
	s.mu.Lock()
	s.sending++
	last := len(s.waiting) - 1
	if last < 0 {
		s.mu.Unlock()
		go s.work(c)
		return
	}
	next := s.waiting[last]
	s.waiting = s.waiting[:last]
	s.mu.Unlock()
	next <- c
}

// work sends a call, and then each call that its channel delivers.
func (s *senders) work(c *Call) {
	growStack()
	var calls chan *Call // nil until it waits for the first time
	for c != nil {
		if calls = s.sendOne(c, calls); calls == nil {
			return
		}
		c = <-calls
	}
}

// sendOne sends a call. It returns the channel on which to wait for another one, or nil if the goroutine is to end.
func (s *senders) sendOne(c *Call, calls chan *Call) (wait chan *Call) {
	returned := false
	defer func() { // a hook may have called runtime.Goexit
		wait = s.rest(calls, returned)
		c.Finish() // only now: the caller may have another call for this goroutine
	}()
	c.catch(func() { s.redis.sendHere(c) })
	returned = true
	return nil
}

// rest notes that a goroutine has sent its call. It returns the channel on which to wait for another one, or nil if the
// goroutine is to end. The channel is calls, unless that is nil.
func (s *senders) rest(calls chan *Call, alive bool) (wait chan *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending--
	if s.sending == 0 {
		for _, other := range s.waiting {
			close(other)
		}
		s.waiting = nil
		return nil
	}
	if !alive || len(s.waiting) >= maxWaiting {
		return nil
	}
	if calls == nil {
		calls = make(chan *Call, 1)
	}
	s.waiting = append(s.waiting, calls)
	return calls
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

// sendHere sends the call until it is answered, it is lost, resending is of no use, or nobody wants the call any more.
func (r *Redis) sendHere(c *Call) {
	r.sendFirst(c)
	r.resend(c)
}

// sendFirst sends the call once.
func (r *Redis) sendFirst(c *Call) {
	if c.lane != nil {
		defer c.lane.endTrip(c)
	}
	c.Reply, c.Err = r.once(c)
}
