package place

import (
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/transport"
)

// Renewals renews the kept locks of all Clients of one Redis client. It sends the renewals that are due in one round of the
// schedule together. A lock at several places is among the Renewals of its first place.
type Renewals struct {
	*schedule.Schedule           // of Upkeeps
	due                []Renewal // due in the present round; belongs to the schedule's goroutine
}

func newRenewals() *Renewals {
	r := &Renewals{}
	r.Schedule = schedule.New(r.endRound)
	return r
}

// Upkeep is a kept lock as an item of the schedule of renewals.
type Upkeep interface {
	schedule.Item
	Bearer() life.Bearer
	Home() *Place // among whose renewals it is
}

// Renewal is a request that renews a lock at a place.
type Renewal interface {
	Request() *transport.Call
	At() *Place
	Until() time.Time        // the end of the lock's validity
	Patience() time.Duration // how long to wait for the answer before another renewal follows
	Finish(sent bool)        // applies the result of the request, which has ended; or it was not sent
}

// Add starts the renewals of a lock. It returns false if the lock's Client is closed: then the caller ends the lock's
// contexts. Add looks whether the Client is closed after it has added the lock. So of an Add and a Close at the same time,
// at least one sees the other.
func (r *Renewals) Add(u Upkeep) bool {
	p := u.Home()
	p.keeps.Store(true)
	r.Schedule.Add(u)
	return !fault.IsClosed(p.set.Closed)
}

// Enqueue sends renewals at the end of the present round. Only Upkeep.Look may call it.
func (r *Renewals) Enqueue(due ...Renewal) { r.due = append(r.due, due...) }

// end ends all contexts of the locks that a Client keeps. The Client was closed.
func (r *Renewals) end(p *Place) {
	for _, item := range r.Items() {
		if u := item.(Upkeep); u.Home() == p && !life.Lapse(u.Bearer()) {
			life.EndKept(u.Bearer(), fault.ErrClosed)
		}
	}
}

// endRound ends the contexts of the locks in over, which are no longer kept or no longer valid. Then it sends the renewals
// that are due.
func (r *Renewals) endRound(over []schedule.Item) {
	for _, item := range over {
		u := item.(Upkeep)
		over, send := life.Lapsing(u.Bearer())
		if !over && !r.Add(u) { // a Refresh has extended it since
			life.EndKept(u.Bearer(), fault.ErrClosed)
		}
		if send != nil {
			// Not in this goroutine, which must end the contexts of other locks in time. The receiver of the event may ask Redis
			// what has become of the keys, and Redis may be down.
			go send()
		}
	}
	due := r.due
	r.due = nil
	SendRenewals(due)
}

// SendRenewals sends renewals in shared pipelines. It begins with the locks whose validity ends first.
func SendRenewals(due []Renewal) {
	slices.SortFunc(due, func(a, b Renewal) int { return a.Until().Compare(b.Until()) })
	patience := func(c *transport.Call) time.Duration { return c.Tag.(Renewal).Patience() }
	for len(due) > 0 {
		redis := due[0].At().Redis.Redis
		var calls []*transport.Call
		due = slices.DeleteFunc(due, func(r Renewal) bool {
			if r.At().Redis.Redis != redis {
				return false
			}
			c := r.Request()
			c.Tag, c.Alone = r, r.At().Redis.Separates()
			calls = append(calls, c)
			return true
		})
		for _, c := range redis.SendBatches(calls, patience, func(c *transport.Call) { c.Tag.(Renewal).Finish(true) }) {
			c.Tag.(Renewal).Finish(false)
		}
	}
}
