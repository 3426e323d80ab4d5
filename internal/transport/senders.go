package transport

import "sync"

// senders are the goroutines that send calls for callers who may leave before the answer. A goroutine that has sent its
// call waits for the next one as long as any other is sending: the stack that it has grown costs as much as a tenth of
// a call. The last one to end also ends the waiting ones, so at rest there are none.
type senders struct {
	redis *Redis

	mu      sync.Mutex // protects the fields below
	sending int
	waiting []chan *Call // each has room for one; closed to end its goroutine
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

// work sends a call, and further ones for as long as it is handed any.
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

// sendOne sends a call. It returns the channel on which to wait for another one, or nil not to wait.
func (s *senders) sendOne(c *Call, calls chan *Call) (wait chan *Call) {
	returned := false
	defer func() { // a hook may have called runtime.Goexit
		wait = s.rest(calls, returned)
		close(c.done) // only now: the caller may have another call for this goroutine
	}()
	c.guard(func() { s.redis.sendHere(c) })
	returned = true
	return nil
}

// rest notes that a goroutine has sent its call. It returns the channel on which it is to wait for another one, calls if
// that is not nil, or nil if the goroutine is to end.
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
