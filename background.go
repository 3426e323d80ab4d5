package redislock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// cleanup is a release that goes on in the background: of what an abandoned obtain may have acquired, or of a lock
// whose Release was not answered in time.
type cleanup struct {
	token   string
	release *transport.Call // nil if this is no cleanup, but another call that a later obtain waits for; see underWay
	why     string          // what a Tracer is told; one of the Why constants
	about   []string        // the keys that a Tracer is told
	keys    []string        // all keys that it may release, none for a waiter that leaves; never changed
	taken   []string        // those that it does release; nil for all. Set by its job, may be read once done is closed
	ttl     time.Duration   // for how long the release is resent
	sending bool            // release may be on its way; cleanups.mu protects this field and release
	over    bool            // nothing more is sent; likewise
	at      int             // its index in cleanups.byToken; cleanups.mu protects it
	order   int             // its number among those of a Client, in the order in which they began; set once
	again   bool            // a request that acquires may still be stuck: a sweep releases twice, whatever it finds
	follows *cleanup        // if follows was dropped before this one began, this one is dropped as well; nil for none
	stop    chan struct{}   // closed when it is superseded; nil for a call
	done    chan struct{}   // closed when nothing more is sent; see ending
	after   *aftermath      // is told how it ends, in place of the Tracer; nil unless it is at one of several places
}

const (
	// maxCleanups bounds the cleanups of all Clients of one Redis client that release keys; each costs a goroutine or two,
	// about 6 KB. With 1,000, a Client that released 10,000 locks while Redis refused them left 9,000 behind. If there is no
	// room for a cleanup, its keys expire with their ttl. A waiter that leaves is not bounded: it has just freed the goroutine
	// that waited.
	maxCleanups = 10_000

	// sweepAgain is the time after which a sweep that found nothing releases once more: a request may still have been on
	// its way although its connection was given up.
	sweepAgain = time.Second

	// closeGrace is how long Close waits for running cleanups.
	closeGrace = time.Second
)

// newCleanup returns a cleanup of all these keys, which last for the ttl at most.
func newCleanup(release *transport.Call, why string, keys []string, ttl time.Duration) *cleanup {
	return &cleanup{release: release, why: why, keys: keys, about: keys, ttl: ttl}
}

// inBackground runs job, which carries out the cleanup, in a goroutine of its own. It reports whether there was room.
// The goroutine ends with the job, and a job ends soon after the GiveUp of its release.
func (c *Client) inBackground(x *cleanup, job func() error) bool {
	if c.startCleanup(x, job) {
		return true
	}
	c.tellDropped(x)
	return false
}

// tellDropped tells a Tracer that there was no room for a cleanup.
func (c *Client) tellDropped(x *cleanup) {
	event := CleanedUp{Keys: x.about, Why: x.why, Dropped: true}
	if x.after != nil {
		x.after.begin()
		x.after.end(&event)
		return
	}
	tell(x.release.Ctx, c.tracer.CleanedUp, event)
}

// startCleanup is inBackground, but tells no Tracer if there was no room.
func (c *Client) startCleanup(x *cleanup, job func() error) bool {
	c.cleanups.mu.Lock()
	defer c.cleanups.mu.Unlock()
	return c.startLocked(x, job)
}

// startLocked is startCleanup for a caller who holds cleanups.mu.
func (c *Client) startLocked(x *cleanup, job func() error) bool {
	if c.cleanups.running.Load() >= maxCleanups && len(x.keys) > 0 {
		return false
	}
	if x.follows != nil && x.follows.release.IsDropped() {
		x.release.Drop()
	}
	x.token = x.release.Token
	c.cleanups.add(x)
	if len(x.keys) > 0 {
		c.cleanups.running.Add(1)
	}
	x.stop, x.done = make(chan struct{}), make(chan struct{})
	ctx := x.release.Ctx
	x.after.begin()
	go func() {
		err := c.clean(x, job)
		// Only now, when nobody waits for the cleanup any more: a Tracer may call the library.
		var event *CleanedUp
		if err != transport.ErrDropped && !x.release.IsDropped() {
			event = &CleanedUp{Keys: x.about, Why: x.why, Err: err}
		}
		if x.after != nil {
			x.after.end(event)
		} else if event != nil {
			tell(ctx, c.tracer.CleanedUp, *event)
		}
	}()
	return true
}

// clean runs the job of a cleanup, and then makes room for another one.
func (c *Client) clean(x *cleanup, job func() error) error {
	defer func() {
		c.cleanups.mu.Lock()
		defer c.cleanups.mu.Unlock()
		c.cleanups.remove(x)
		if len(x.keys) > 0 {
			c.cleanups.running.Add(-1)
		}
	}()
	return job()
}

// cleanups are those of one Client that are under way. The Client of its locks across slots has the same, because an
// obtain there and one here may use the same custom token and the same keys.
type cleanups struct {
	running *atomic.Int64 // cleanups under way that release keys; see maxCleanups

	mu      sync.Mutex            // protects the fields below
	begun   int                   // cleanups and calls so far
	byToken map[string][]*cleanup // cleanups and calls under way
}

// add makes a cleanup known to supersede. The caller holds mu.
func (s *cleanups) add(x *cleanup) {
	if s.byToken == nil {
		s.byToken = make(map[string][]*cleanup)
	}
	x.at = len(s.byToken[x.token])
	s.byToken[x.token] = append(s.byToken[x.token], x)
	s.begun++
	x.order = s.begun
}

// remove ends what add began. The caller holds mu.
func (s *cleanups) remove(x *cleanup) {
	all := s.byToken[x.token]
	last := len(all) - 1
	moved := all[last] // there may be many, and their order means nothing
	all[x.at], moved.at = moved, x.at
	all[last] = nil
	if s.byToken[x.token] = all[:last]; last == 0 {
		delete(s.byToken, x.token)
	}
	x.over = true
	if x.done != nil {
		close(x.done)
	}
}

// ending returns a channel that is closed when nothing more is sent. A call has one only if somebody waits for it. The
// caller holds cleanups.mu, and x is not over.
func (x *cleanup) ending() <-chan struct{} {
	if x.done == nil {
		x.done = make(chan struct{})
	}
	return x.done
}

// isCall reports whether x is no cleanup, but a call. It needs no mutex: x.stop is set before supersede can find x.
func (x *cleanup) isCall() bool { return x.stop == nil }

// next returns the order of the next cleanup or call.
func (s *cleanups) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun + 1
}

// any reports whether a cleanup or a call is under way.
func (s *cleanups) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byToken) > 0
}

// underWay makes a Refresh known to supersede, which then waits for it: it may go on after its caller has returned, and
// shorten the ttl. Call ended with the result when it has ended.
func (c *Client) underWay(token string, keys []string) *cleanup {
	x := &cleanup{token: token, keys: keys, sending: true}
	c.cleanups.mu.Lock()
	defer c.cleanups.mu.Unlock()
	c.cleanups.add(x)
	return x
}

// ended ends what underWay began. It does nothing for nil.
func (c *Client) ended(x *cleanup) {
	if x == nil {
		return
	}
	c.cleanups.mu.Lock()
	defer c.cleanups.mu.Unlock()
	c.cleanups.remove(x)
}

// persist lets a release that is on its way go on until its GiveUp.
func (c *Client) persist(release *transport.Call, why string, keys []string) {
	x := newCleanup(release, why, keys, time.Until(release.GiveUp))
	x.sending = true
	job := func() error {
		<-release.Done()
		return release.Err
	}
	if c.inBackground(x, job) {
		release.Persist()
	}
}

// sweep makes sure that the token holds none of the keys of the cleanup. It sends the release after the delay, and
// resends it for as long as the keys can last. If the release deleted nothing, or if x.again is set, sweep sends it
// once more a little later. It does all that again when the tries that were abandoned with this token have ended.
func (c *Client) sweep(x *cleanup, delay time.Duration, abandoned ...*transport.Call) {
	c.inBackground(x, func() error {
		if delay > 0 {
			c.pause(x, delay)
		}
		err := c.sweepNow(x)
		if len(abandoned) > 0 {
			for _, try := range abandoned {
				<-try.Done()
			}
			err = c.sweepNow(x)
		}
		return err
	})
}

// sweepNow does the work of sweep in the goroutine of the cleanup.
func (c *Client) sweepNow(x *cleanup) error {
	deleted, err := c.sendCleanup(x)
	if (deleted == 0 || x.again) && !x.release.IsDropped() {
		c.pause(x, sweepAgain)
		_, err = c.sendCleanup(x)
	}
	return err
}

// pause waits for d, or until the cleanup is superseded. On a closed Client it does not wait.
func (c *Client) pause(x *cleanup, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.stop:
	case <-c.closed:
	}
}

// sendCleanup sends the release, unless it was superseded, and resends it for as long as the keys can last. It returns
// how many keys the release deleted.
func (c *Client) sendCleanup(x *cleanup) (deleted int, err error) {
	c.cleanups.mu.Lock()
	x.sending = !x.release.IsDropped()
	c.cleanups.mu.Unlock()
	if !x.sending {
		return 0, transport.ErrDropped
	}
	x.release.GiveUp, x.release.Stop = time.Now().Add(x.ttl), x.stop
	x.release.Persist()
	c.redis.Send(x.release)
	c.cleanups.mu.Lock()
	x.sending = false
	c.cleanups.mu.Unlock()
	if x.release.Err != nil {
		return 0, x.release.Err
	}
	lost, _ := x.release.Reply.([]any)
	return len(x.release.Keys) - len(lost), nil
}

// noteIdle notes that the release of a cleanup is not on its way now.
func (c *Client) noteIdle(x *cleanup) {
	c.cleanups.mu.Lock()
	defer c.cleanups.mu.Unlock()
	x.sending = false
}

// sendRound sends a release as the next one of a cleanup, unless that was superseded.
func (c *Client) sendRound(x *cleanup, round *transport.Call) {
	c.cleanups.mu.Lock()
	if x.release.IsDropped() {
		c.cleanups.mu.Unlock()
		round.Drop()
		round.Err = transport.ErrDropped
		return
	}
	round.Stop = x.stop
	x.release, x.sending = round, true
	c.cleanups.mu.Unlock()
	c.redis.Send(round)
	c.noteIdle(x)
}
