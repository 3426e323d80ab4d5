package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// cleanup is a release that goes on in the background: of what an abandoned obtain may have acquired, or of a lock
// whose Release was not answered in time.
type cleanup struct {
	*pending // its keys are all that it may release: none for a waiter that leaves

	release *transport.Call // belongs to the job
	why     string          // what a Tracer is told; one of the Why constants, or "" for a step of a call that goes on
	about   []string        // the keys that a Tracer is told
	ttl     time.Duration   // for how long the release is resent
	again   bool            // a request that acquires may still be stuck: a sweep releases twice, whatever it finds
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
	return &cleanup{
		pending: &pending{token: release.Token, keys: keys, hurry: make(chan struct{})},
		release: release, why: why, about: keys, ttl: ttl,
	}
}

// inBackground runs job, which carries out the cleanup, in a goroutine of its own. It reports whether there was room.
// The goroutine ends with the job, and a job ends soon after the GiveUp of its release.
func (p *place) inBackground(x *cleanup, job func() error) bool {
	if p.startCleanup(x, job) {
		return true
	}
	p.tellDropped(x)
	return false
}

// tellDropped tells a Tracer that there was no room for a cleanup. It does so in a goroutine, which ends with the Tracer:
// the caller may hold a mutex, and a Tracer may call the library.
func (p *place) tellDropped(x *cleanup) {
	if p.tracer.CleanedUp != nil && x.why != "" {
		go p.tracer.CleanedUp(x.release.Ctx, CleanedUp{Keys: x.about, Why: x.why, Dropped: true})
	}
}

// startCleanup is inBackground, but tells no Tracer if there was no room.
func (p *place) startCleanup(x *cleanup, job func() error) bool {
	releases := len(x.keys) > 0
	if releases && p.pendings.cleaning.Add(1) > maxCleanups {
		p.pendings.cleaning.Add(-1)
		return false
	}
	p.pendings.begin(x.pending)
	ctx := x.release.Ctx
	go func() {
		err := func() error {
			defer func() { // also after a panic
				if releases {
					p.pendings.cleaning.Add(-1)
				}
				p.pendings.end(x.pending)
			}()
			return job()
		}()
		// Only now, when nobody waits for the cleanup any more: a Tracer may call the library.
		if x.why != "" {
			tell(ctx, p.tracer.CleanedUp, CleanedUp{Keys: x.about, Why: x.why, Err: err})
		}
	}()
	return true
}

// persist lets a release that is on its way go on until its GiveUp.
func (p *place) persist(release *transport.Call, why string, keys []string) {
	x := newCleanup(release, why, keys, time.Until(release.GiveUp))
	p.pendings.send(x.pending, release)
	job := func() error {
		<-release.Done()
		return release.Err
	}
	if p.inBackground(x, job) {
		release.Persist()
	} else {
		p.outlast(x)
	}
}

// outlast makes a release known to later obtains that is under way, but had no room for its cleanup: it may still free keys
// that the same token acquires meanwhile.
func (p *place) outlast(x *cleanup) {
	p.pendings.begin(x.pending)
	go func() { // ends with the call, which has a goroutine anyway
		x.release.Wait(context.Background())
		p.pendings.end(x.pending)
	}()
}

// sweep makes sure that the token holds none of the keys of the cleanup. It sends the release after the delay, and
// resends it for as long as the keys can last. If the release deleted nothing, or if x.again is set, sweep sends it
// once more a little later. It does all that again when the tries that were abandoned with this token have ended.
func (p *place) sweep(x *cleanup, delay time.Duration, abandoned ...*transport.Call) {
	p.inBackground(x, func() error {
		if delay > 0 {
			p.pause(x, delay)
		}
		err := p.sweepNow(x)
		if len(abandoned) > 0 {
			for _, try := range abandoned {
				<-try.Done()
			}
			err = p.sweepNow(x)
		}
		return err
	})
}

// sweepNow does the work of sweep in the goroutine of the cleanup.
func (p *place) sweepNow(x *cleanup) error {
	deleted, err := p.sendCleanup(x)
	if deleted == 0 || x.again {
		p.pause(x, sweepAgain)
		_, err = p.sendCleanup(x)
	}
	return err
}

// pause waits for d. On a closed Client it does not wait. An obtain that waits for the cleanup ends the pause: see
// pendings.hurry.
func (p *place) pause(x *cleanup, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.closed:
	case <-x.hurry:
	}
}

// sendCleanup sends the release, and resends it for as long as the keys can last. It returns how many keys the release
// deleted.
func (p *place) sendCleanup(x *cleanup) (deleted int, err error) {
	x.release.GiveUp, x.release.Hurry = time.Now().Add(x.ttl), x.hurry
	x.release.Persist()
	p.pendings.send(x.pending, x.release)
	p.redis.Send(x.release)
	if x.release.Err != nil {
		return 0, x.release.Err
	}
	return script.Deleted(x.release), nil
}
