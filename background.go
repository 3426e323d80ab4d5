package redislock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// cleanup is a release that goes on in the background: of what an abandoned obtain may have acquired, or of a lock
// whose Release was not answered in time.
type cleanup struct {
	release *transport.Call
	why     string        // what a Tracer is told; one of the Why constants
	about   []string      // and of which keys
	keys    []string      // all keys that it may release, none for a waiter that leaves; never changed
	sending bool          // release may be on its way; both fields are protected by Client.mu
	order   int           // of those of a Client, when it began; set once
	call    bool          // it is no cleanup, but a call at one of several places that may lead to one; see underWay
	done    chan struct{} // closed when nothing more is sent
	after   *aftermath    // is told how it ends, in place of the Tracer; nil unless it is at one of several places
}

const (
	// maxCleanups bounds the cleanups of one Client that release keys; each costs a goroutine or two. If there is no room
	// for a cleanup, its keys expire with their ttl. A waiter that leaves is not bounded: it has just freed a goroutine,
	// and is done within 3 s.
	maxCleanups = 1000

	// sweepAgain is the time after which a sweep that found nothing releases once more: a request may still have been on
	// its way although its connection was given up.
	sweepAgain = time.Second

	// closeGrace is how long Close waits for running cleanups.
	closeGrace = time.Second
)

// newCleanup returns a cleanup of all these keys.
func newCleanup(release *transport.Call, why string, keys []string) *cleanup {
	return &cleanup{release: release, why: why, keys: keys, about: keys}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cleaning >= maxCleanups && len(x.keys) > 0 {
		return false
	}
	token := x.release.Token
	c.register(x)
	c.cleaning++
	x.done = make(chan struct{})
	ctx := x.release.Ctx
	x.after.begin()
	go func() {
		err := c.clean(x, token, job)
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
func (c *Client) clean(x *cleanup, token string, job func() error) error {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(x, token)
		c.cleaning--
	}()
	return job()
}

// register makes a cleanup known to supersede. The caller holds c.mu.
func (c *Client) register(x *cleanup) {
	token := x.release.Token
	if c.cleanups[token] == nil {
		if c.cleanups == nil {
			c.cleanups = make(map[string]map[*cleanup]struct{})
		}
		c.cleanups[token] = make(map[*cleanup]struct{})
	}
	c.cleanups[token][x] = struct{}{}
	c.begun++
	x.order = c.begun
}

// forget ends what register began. The caller holds c.mu.
func (c *Client) forget(x *cleanup, token string) {
	delete(c.cleanups[token], x)
	if len(c.cleanups[token]) == 0 {
		delete(c.cleanups, token)
	}
	close(x.done)
}

// underWay makes a call at one of several places known to supersede, which then waits for it. Such a call may outlast the
// one of the caller, and free the keys, or lead to a cleanup that does. Call ended with the result when the call has ended
// and its cleanup, if there is one, has begun.
func (c *Client) underWay(token string, keys []string) *cleanup {
	x := &cleanup{
		release: &transport.Call{Token: token}, keys: keys, sending: true, call: true, done: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.register(x)
	return x
}

// ended ends what underWay began.
func (c *Client) ended(x *cleanup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(x, x.release.Token)
}

// persist lets a release that is on its way go on until its GiveUp.
func (c *Client) persist(release *transport.Call, why string, keys []string) {
	x := &cleanup{release: release, why: why, keys: keys, about: keys, sending: true}
	job := func() error {
		<-release.Done()
		return release.Err
	}
	if c.inBackground(x, job) {
		release.Persist()
	}
}

// sweep makes sure that the token holds none of the keys of the cleanup. It sends the release after the delay, and resends
// it for as long as the keys can last. Unless that deleted something, it sends the release once more a little later. It
// does all that again when the tries that were abandoned with this token have ended.
func (c *Client) sweep(x *cleanup, ttl, delay time.Duration, abandoned ...*transport.Call) {
	c.inBackground(x, func() error {
		if delay > 0 {
			c.pause(delay)
		}
		err := c.sweepNow(x, ttl)
		if len(abandoned) > 0 {
			for _, try := range abandoned {
				<-try.Done()
			}
			err = c.sweepNow(x, ttl)
		}
		return err
	})
}

// sweepNow does the work of sweep in the goroutine of the cleanup.
func (c *Client) sweepNow(x *cleanup, ttl time.Duration) error {
	deleted, err := c.sendCleanup(x, ttl)
	if deleted == 0 && !x.release.IsDropped() {
		c.pause(sweepAgain)
		_, err = c.sendCleanup(x, ttl)
	}
	return err
}

// pause waits for d. On a closed Client it does not wait.
func (c *Client) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// sendCleanup sends the release, unless it was superseded, and resends it for up to ttl. It returns how many keys the
// release deleted.
func (c *Client) sendCleanup(x *cleanup, ttl time.Duration) (deleted int, err error) {
	c.mu.Lock()
	x.sending = !x.release.IsDropped()
	c.mu.Unlock()
	if !x.sending {
		return 0, transport.ErrDropped
	}
	x.release.GiveUp = time.Now().Add(ttl)
	x.release.Persist()
	c.redis.Send(x.release)
	c.mu.Lock()
	x.sending = false
	c.mu.Unlock()
	if x.release.Err != nil {
		return 0, x.release.Err
	}
	lost, _ := x.release.Reply.([]any)
	return len(x.release.Keys) - len(lost), nil
}

// noteIdle notes that the release of a cleanup is not on its way now.
func (c *Client) noteIdle(x *cleanup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.sending = false
}

// sendRound sends a release as the next one of a cleanup, unless that was superseded.
func (c *Client) sendRound(x *cleanup, round *transport.Call) {
	c.mu.Lock()
	if x.release.IsDropped() {
		c.mu.Unlock()
		round.Drop()
		round.Err = transport.ErrDropped
		return
	}
	x.release, x.sending = round, true
	c.mu.Unlock()
	c.redis.Send(round)
	c.noteIdle(x)
}

// supersede ends the cleanups that could delete what an obtain with a custom token is about to acquire: the token may
// be that of an abandoned obtain or lock. It waits for cleanups whose release is on its way, but not past the end of
// ctx. It does not see other processes with the same token.
//
// own is the call of the obtain itself, if that is at one of several places; nil otherwise. Calls at the place that began
// after it will wait for it. Those that began before it may lead to cleanups, so it looks again after them.
//
// It compares the keys without holding the mutex, because there may be many. A cleanup never changes its keys, and one
// that begins to send meanwhile is found sending afterwards.
func (c *Client) supersede(ctx context.Context, token string, keys []string, own *cleanup) error {
	for {
		waited, err := c.supersedeOnce(ctx, token, keys, own)
		if err != nil || !waited {
			return err
		}
	}
}

// supersedeOnce does the work of supersede. It reports whether it has waited for calls that may lead to cleanups.
func (c *Client) supersedeOnce(ctx context.Context, token string, keys []string, own *cleanup) (waited bool, err error) {
	c.mu.Lock()
	found := slices.Collect(maps.Keys(c.cleanups[token]))
	c.mu.Unlock()
	found = slices.DeleteFunc(found, func(x *cleanup) bool { return x == own || own != nil && x.call && x.order > own.order })
	if len(found) == 0 {
		return false, nil
	}
	wanted := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		wanted[key] = struct{}{}
	}
	found = slices.DeleteFunc(found, func(x *cleanup) bool {
		return ctx.Err() == nil && !slices.ContainsFunc(x.keys, func(key string) bool { _, shared := wanted[key]; return shared })
	})
	if err := ended(ctx); err != nil { // so found may contain too many
		return false, notObtained(err)
	}
	var onTheWire []chan struct{}
	c.mu.Lock()
	for _, x := range found {
		x.release.Drop()
		waited = waited || x.call
		if x.sending {
			onTheWire = append(onTheWire, x.done)
		}
	}
	c.mu.Unlock()
	for _, done := range onTheWire {
		select {
		case <-done:
		case <-ctx.Done():
			return false, notObtained(fmt.Errorf("%w; an earlier release with the same token: %w", ended(ctx), errUnanswered))
		}
	}
	return waited, nil
}
