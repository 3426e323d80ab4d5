package place

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/transport"
)

// Keeper renews the kept locks of all Clients of one Redis client. It sends the renewals that are due in one round of the
// schedule together.
type Keeper struct {
	*schedule.Schedule           // of Upkeeps
	due                []Renewal // due in the present round; belongs to the schedule's goroutine
}

func newKeeper() *Keeper {
	k := &Keeper{}
	k.Schedule = schedule.New(k.endRound)
	return k
}

// Upkeep is a lock that can be kept: an item of the schedule of renewals.
type Upkeep interface {
	schedule.Item
	life.Owner
	Home() *Place // whose Keeper renews it
}

// Sending is a request that renews what a token has at a place.
type Sending struct {
	Call *transport.Call

	hold     *Hold
	until    time.Time     // the end of the lock's validity
	patience time.Duration // how long to wait for the answer before another renewal follows
	isOver   bool          // the lock was released, so this is not to be sent
}

// Sending returns an unsent renewal. kept is the metadata of keys that a guard puts back.
func (h *Hold) Sending(
	ctx context.Context, ttl time.Duration, kept string, until time.Time, patience time.Duration,
) Sending {
	call := h.RefreshCall(ttl, "", kept, true)
	call.Ctx = ctx
	return Sending{Call: call, hold: h, until: until, patience: patience, isOver: !h.BeginRefresh()}
}

// finish calls Finish of a renewal whose request has ended, or was not sent.
func finish(r Renewal, sent bool) {
	s := r.sending()
	switch c := s.Call; {
	case s.isOver:
	case sent:
		s.hold.EndRefresh(!c.IsAnswered(), c) // a renewal is sent once, so nobody has set Doubtful
	default:
		s.hold.EndRefresh(false)
	}
	r.Finish(sent)
}

func (s *Sending) sending() *Sending { return s }

// Renewal embeds a Sending, and knows what follows from it.
type Renewal interface {
	sending() *Sending
	Finish(sent bool) // applies the result of the request, which has ended; or it was not sent
}

// Add starts the renewals of a lock. It returns false if the lock's Client is closed: then the caller ends the lock's
// contexts. Add looks whether the Client is closed after it has added the lock. So of an Add and a Close at the same time,
// at least one sees the other.
func (k *Keeper) Add(u Upkeep) bool {
	p := u.Home()
	p.keeps.Store(true)
	k.Schedule.Add(u)
	return !fault.IsClosed(p.set.Closed)
}

// Enqueue sends renewals at the end of the present round. Only Upkeep.Look may call it.
func (k *Keeper) Enqueue(due ...Renewal) { k.due = append(k.due, due...) }

// end ends all contexts of the locks that a Client keeps. The Client was closed.
func (k *Keeper) end(p *Place) {
	for _, item := range k.Items() {
		if u := item.(Upkeep); u.Home() == p && !life.Lapse(u) {
			life.EndKept(u, fault.ErrClosed)
		}
	}
}

// endRound ends the contexts of the locks in over, which are no longer kept or no longer valid. Then it sends the renewals
// that are due.
func (k *Keeper) endRound(over []schedule.Item) {
	for _, item := range over {
		u := item.(Upkeep)
		over, send := life.Lapsing(u)
		if !over && !k.Add(u) { // a Refresh has extended it since
			life.EndKept(u, fault.ErrClosed)
		}
		if send != nil {
			// Not in this goroutine, which must end the contexts of other locks in time. The receiver of the event may ask Redis
			// what has become of the keys, and Redis may be down.
			go send()
		}
	}
	due := k.due
	k.due = nil
	SendRenewals(due)
}

// SendRenewals sends renewals in shared pipelines. It begins with the locks whose validity ends first.
func SendRenewals(due []Renewal) {
	slices.SortFunc(due, func(a, b Renewal) int { return a.sending().until.Compare(b.sending().until) })
	due = slices.DeleteFunc(due, func(r Renewal) bool {
		isOver := r.sending().isOver
		if isOver {
			finish(r, false)
		}
		return isOver
	})
	patience := func(c *transport.Call) time.Duration { return c.Tag.(Renewal).sending().patience }
	for len(due) > 0 {
		redis := due[0].sending().hold.Place.Redis.Redis
		var calls []*transport.Call
		due = slices.DeleteFunc(due, func(r Renewal) bool {
			at, c := r.sending().hold.Place.Redis, r.sending().Call
			if at.Redis != redis {
				return false
			}
			c.Tag, c.Alone = r, at.Separates()
			calls = append(calls, c)
			return true
		})
		for _, c := range redis.SendBatches(calls, patience, func(c *transport.Call) { finish(c.Tag.(Renewal), true) }) {
			finish(c.Tag.(Renewal), false)
		}
	}
}
