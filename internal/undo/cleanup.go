package undo

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Cleanup is a release in the background: of what an abandoned obtain may have acquired, or of a lock whose Release was not
// answered in time.
type Cleanup struct {
	*Work // its keys are those that the release may free: none for a waiter that leaves

	Release *transport.Call // belongs to the job
	About   []string        // the keys in the event
	Again   bool            // a request that acquires may still arrive: a sweep releases twice, whatever it finds

	why Why           // in the event
	ttl time.Duration // for how long the release is resent
}

const (
	// MaxRunning bounds the cleanups of all Clients of one Redis client that release keys. Each costs a goroutine or two, about
	// 6 KB. With a bound of 1,000, a Client that released 10,000 locks while Redis refused them left 9,000 behind. If there is
	// no room for a cleanup, its keys expire with their ttl. A waiter that leaves is not counted, because it has just freed the
	// goroutine that waited.
	MaxRunning = 10_000

	// SweepAgain is the time after which a sweep that found nothing releases once more. A request may still have been on its
	// way although its connection was given up.
	SweepAgain = time.Second
)

// Why is what a cleanup is for.
type Why int

// The reasons for a cleanup.
const (
	Step      Why = iota // a step of a call that goes on: there is no event
	Abandoned            // an obtain ended without an answer to one of its tries
	Late                 // a grant arrived after its validity or the Release, or may still arrive
	Resent               // the lock is released, but its obtain was sent twice and may still arrive
	Release              // a Release returned before the keys were freed
	Line                 // a waiter gave up its position
)

// New returns a cleanup that may free these keys. They last for the ttl at most.
func New(release *transport.Call, why Why, keys []string, ttl time.Duration) *Cleanup {
	return &Cleanup{
		Work:    &Work{Token: release.Token, Keys: keys, Hurry: make(chan struct{})},
		Release: release, why: why, About: keys, ttl: ttl,
	}
}

// Run runs job, which carries out the cleanup, in a goroutine of its own. It reports whether there was room. The job must
// end soon after the GiveUp of its release.
func (c *Cleanups) Run(x *Cleanup, job func() error) bool {
	if c.Start(x, job) {
		return true
	}
	c.ReportDropped(x)
	return false
}

// ReportDropped reports that there was no room for a cleanup. It does so in another goroutine, because the caller may hold a
// mutex, and Report may call the library.
func (c *Cleanups) ReportDropped(x *Cleanup) {
	if c.Report != nil && x.why != Step {
		go c.Report(x.Release.Ctx, Event{Keys: x.About, Why: x.why, Dropped: true})
	}
}

// Start is Run, but reports no event if there was no room.
func (c *Cleanups) Start(x *Cleanup, job func() error) bool {
	releases := len(x.Keys) > 0
	if releases && c.Running.Add(1) > MaxRunning {
		c.Running.Add(-1)
		return false
	}
	c.Begin(x.Work)
	ctx := x.Release.Ctx
	go func() {
		err := func() error {
			defer func() { // also after a panic
				if releases {
					c.Running.Add(-1)
				}
				c.End(x.Work)
			}()
			return job()
		}()
		// Only now, when nobody waits for the cleanup any more, because Report may call the library.
		if c.Report != nil && x.why != Step {
			c.Report(ctx, Event{Keys: x.About, Why: x.why, Err: err})
		}
	}()
	return true
}

// Persist lets a release that is under way go on until its GiveUp.
func (c *Cleanups) Persist(release *transport.Call, why Why, keys []string) {
	x := New(release, why, keys, time.Until(release.GiveUp))
	c.Note(x.Work, release)
	job := func() error {
		<-release.Done()
		return release.Err
	}
	if c.Run(x, job) {
		release.Persist()
	} else {
		c.Outlast(x)
	}
}

// Outlast makes a release that is under way known to later obtains, although there was no room for its cleanup: the release
// may still free keys that the same token acquires meanwhile.
func (c *Cleanups) Outlast(x *Cleanup) {
	c.Begin(x.Work)
	go func() { // ends with the call, which has a goroutine anyway
		x.Release.Wait(context.Background())
		c.End(x.Work)
	}()
}

// Sweep makes sure that the token holds none of the keys of the cleanup. It sends the release after the delay, and resends
// it for as long as the keys can last. If the release deleted nothing, or if x.Again is set, Sweep sends it once more after
// SweepAgain. It does all that a second time when the tries that were abandoned with this token have ended.
func (c *Cleanups) Sweep(x *Cleanup, delay time.Duration, abandoned ...*transport.Call) {
	c.Run(x, func() error {
		if delay > 0 {
			c.pause(x, delay)
		}
		return c.SweepTwice(x, abandoned)
	})
}

// SweepTwice does the work of Sweep in the goroutine of the cleanup, without a delay.
func (c *Cleanups) SweepTwice(x *Cleanup, abandoned []*transport.Call) error {
	err := c.SweepNow(x)
	if len(abandoned) > 0 {
		for _, try := range abandoned {
			<-try.Done()
			x.Again = x.Again || try.Doubtful // what the release deletes may have been acquired by another one of them
		}
		err = c.SweepNow(x)
	}
	return err
}

// SweepNow does the work of Sweep in the goroutine of the cleanup, without a delay and abandoned tries.
func (c *Cleanups) SweepNow(x *Cleanup) error {
	deleted, err := c.SendRelease(x)
	if deleted == 0 || x.Again {
		c.pause(x, SweepAgain)
		_, err = c.SendRelease(x)
	}
	return err
}

// pause waits for d, or until the Client is closed, or until an obtain that waits for the cleanup ends the pause: see hurry.
func (c *Cleanups) pause(x *Cleanup, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.Closed:
	case <-x.Hurry:
	}
}

// SendRelease sends the release, and resends it for as long as the keys can last. It returns how many keys the release
// deleted.
func (c *Cleanups) SendRelease(x *Cleanup) (deleted int, err error) {
	x.Release.GiveUp, x.Release.Hurry = time.Now().Add(x.ttl), x.Hurry
	x.Release.Persist()
	c.Note(x.Work, x.Release)
	c.Link.Send(x.Release)
	if x.Release.Err != nil {
		return 0, x.Release.Err
	}
	return script.Deleted(x.Release), nil
}
