package line

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

const (
	// leaveLasts is how much longer than its mark a waiter goes on leaving while nobody answers. By then, the mark has ended
	// for so long that nobody renews it; see hasEnded in internal/script/line.lua.
	leaveLasts = 10 * time.Second

	// maxAbandoned bounds the abandoned tries of one waiter that may still run.
	maxAbandoned = 4
)

// Waiter is one obtain in line at one Redis. The script says how long the waiter waits for its next try. A message may end
// the wait, bring the next try forward, or bring the lock. A Waiter belongs to one goroutine at a time; messages come in
// others.
//
// A nil Waiter stands for an obtain that does not wait in line. HasPosition, LastTicket, Patience, Bear, TryAgain,
// PassOver, Stays, Entry and QuitInbox may be called for it. They do nothing, and return false, 0 or what they were given.
type Waiter struct {
	lines *Lines
	pace  retry.Strategy // shortens the time between tries if no message can come; nil leaves that time to the script
	woken chan struct{}  // has room for one

	// The fields below belong to the goroutine of the obtain.

	number   int64           // of the first member; 0 lets the inbox choose, and after that
	session  *session        // nil before the first try
	share    *inbox.Share    // likewise
	member   *inbox.Member   // likewise
	ctx      context.Context // never ends; has the values of the caller's
	keys     []string
	entry    string        // its entry in the lines; see internal/script/line.lua
	refused  bool          // some try was refused
	failures int           // before the first refusal; see Rest
	next     time.Time     // when to try next
	net      time.Duration // that long after the last try, if nothing has asked for the next one; else 0
	ticket   int64         // 0 for none yet
	usual    time.Duration // how long answers took lately, a moving average
	last     answer        // the last try that the server has refused
	life     time.Duration // for how long the last try has made it live
	opened   int           // the subscription that was open before the present try was sent; 0 for none

	stands standing // session.mu protects it

	mu     sync.Mutex // protects the fields below, which messages and beats set
	called bool       // try now
	lost   bool       // the position may be lost, so a waiter at several places must not wait for the others to call it
	sooner time.Time  // try no later than this; zero for no limit
	handed *HandOff   // a release has handed its keys to the waiter; nil if no message says that
}

// New returns a waiter of the Client. With a nil pace, the scripts alone say how often it tries.
func (l *Lines) New(pace retry.Strategy) *Waiter {
	return &Waiter{lines: l, pace: pace, woken: make(chan struct{}, 1)}
}

// Admit waits until the waiter may send a try for that many keys, and returns a function to call when the try has ended. If
// the keys are handed over first, it returns the hand-off instead. It returns neither if ctx ends or closed is closed first.
//
// Only a few large tries go out at a time, because a server that is busy with many would answer none of them in time.
// Waiters that have a position have slots of their own. Behind waiters that have none yet, they could lose their positions.
func (w *Waiter) Admit(ctx context.Context, closed <-chan struct{}, keys int) (done func(), h *HandOff) {
	slots := w.lines.Hub.entering
	if w.refused {
		slots = w.lines.Hub.staying
	}
	for {
		if h := w.handedOver(); h != nil {
			return nil, h
		}
		if keys < bulk {
			return func() {}, nil
		}
		select {
		case slots <- struct{}{}:
			return func() { <-slots }, nil
		case <-w.woken: // perhaps by a hand-off
		case <-ctx.Done():
			return nil, nil
		case <-closed:
			return nil, nil
		}
	}
}

// Renew makes the waiter a new member with the same ticket. Its next try writes a new entry.
func (w *Waiter) Renew() {
	w.QuitInbox()
	w.member, w.entry, w.last = nil, "", answer{} // the server has answered no try of the new entry
	w.mu.Lock()
	w.handed = nil
	w.mu.Unlock()
}

// Begin prepares a try: c is to obtain o, and to take a position in line if it is refused. Beats have the values of ctx if
// the Client's calls share no round trips.
func (w *Waiter) Begin(ctx context.Context, o *script.Obtain, c *transport.Call) {
	if w.member == nil {
		if w.session == nil { // after Renew, messages for the member before may still look at it
			w.session = w.lines.Hub.sessionFor(o.Keys.Names[0])
			w.share = w.lines.shareOf(w.session.inbox)
			w.keys, w.ctx = o.Keys.Names, ctx
			if ctx.Done() != nil {
				w.ctx = context.WithoutCancel(ctx)
			}
		}
		if w.number > 0 {
			w.member = w.share.EnterAs(fmt.Sprintf("%016d", w.number), w.notify)
			w.number = 0
		} else {
			w.member = w.share.Enter(w.notify)
		}
		w.entry = w.member.ID() + o.Entry()
	}
	w.heed() // the try sees what earlier messages were about
	w.mu.Lock()
	w.lost = false
	w.mu.Unlock()
	var m script.Mark
	m, w.opened = w.session.markOf(w)
	w.life = m.Life
	script.AndWait(c, w.entry, w.ticket, m, o.Proposal)
}

// LastTicket returns the ticket of the waiter; 0 for none.
func (w *Waiter) LastTicket() int64 {
	if w == nil {
		return 0
	}
	return w.ticket
}

// HasPosition reports whether the waiter may have a position in line.
func (w *Waiter) HasPosition() bool { return w != nil && w.member != nil }

// Refuse notes the reply to a refused try that was sent at the given time. From the first refusal on, messages can wake the
// waiter. A beat makes up for messages from before the subscription opened.
func (w *Waiter) Refuse(sent time.Time, g *script.Grant) {
	now := time.Now()
	w.refused = true
	w.share.Listen()
	wait := Interval // while a Cluster slot moves, scripts cannot reach the lines, and the reply has no wait
	w.usual = (3*w.usual + now.Sub(sent)) / 4
	if g.Ticket > 0 {
		w.ticket, w.last = g.Ticket, answer{sent, g.Served}
		w.session.join(w, sent, g)
		if w.session.inbox.Subscription() != w.opened {
			w.session.beatSoon() // it has opened meanwhile
		}
		net := w.session.net()
		if wait = g.Wait; wait == 0 || wait > net {
			w.next, w.net = now.Add(early(net)), net
			return
		}
	} else {
		wait = early(max(wait, w.session.failed(w)))
	}
	w.tryAt(now.Add(wait))
}

// early returns up to a quarter less, at random: waiters that were refused together must not try together.
func early(wait time.Duration) time.Duration { return wait - rand.N(wait/4) }

// tryAt sets when the next try is due.
func (w *Waiter) tryAt(next time.Time) { w.next, w.net = next, 0 }

// restsOn puts the next try off if nothing has asked for it, and the net has become longer because more wait. It reports
// whether it has.
func (w *Waiter) restsOn() bool {
	if w.net == 0 {
		return false
	}
	net := w.session.net()
	if net <= w.net {
		return false
	}
	w.next, w.net = w.next.Add(early(net-w.net)), net
	return true
}

// Patience returns the ctx of one try. In line, the waiter abandons a try that is not answered for a while, and sends the
// next one on another connection. Only a few tries are abandoned at a time, because each keeps its connection until the
// Redis client gives that up. Where answers usually take long, the waiter waits longer, because more tries would make that
// worse.
func (w *Waiter) Patience(ctx context.Context, abandoned int) (context.Context, context.CancelFunc) {
	if w == nil || !w.refused || abandoned >= maxAbandoned {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(Interval, 4*w.usual))
}

// Bear reports whether the waiter goes on after this error. It does if the error may pass. Before the first refusal, it goes
// on only with a deadline, because with a wrong address it would wait for ever.
func (w *Waiter) Bear(ctx context.Context, err error) bool {
	if w == nil || transport.IsFinal(err) || !w.refused && !fault.HasDeadline(ctx) {
		return false
	}
	w.Rest(time.Now())
	return true
}

// firstRest is how long a waiter that was never refused waits after its first error.
const firstRest = 50 * time.Millisecond

// Rest sets when the next try is due after an error. Waiters that were refused try once per Interval, atOnce of them at
// most. A waiter that was never refused has no position, and no beat calls it. It tries soon, because most failovers take a
// second or two, and then less and less often. All do so at random moments, because many may have failed at the same time.
func (w *Waiter) Rest(now time.Time) {
	wait := Interval
	if w.member != nil {
		wait = max(wait, w.session.failed(w))
	}
	if !w.refused {
		wait = min(firstRest<<min(w.failures, 10), Interval)
		w.failures++
	}
	w.tryAt(now.Add(early(wait)))
}

// TryAgain makes the next try due at once.
func (w *Waiter) TryAgain() {
	if w != nil {
		w.tryAt(time.Now().Add(time.Millisecond))
	}
}

// Await waits until the next try is due, a message asks for a try, or a message brings the lock. It returns false if ctx
// ends or closed is closed first.
func (w *Waiter) Await(ctx context.Context, closed <-chan struct{}) bool {
	due := w.next
	if w.pace != nil && w.session.inbox.Subscription() == 0 {
		if pace := w.pace.NextBackoff(); pace > 0 && time.Now().Add(pace).Before(due) {
			due = time.Now().Add(pace)
		}
	}
	for {
		w.mu.Lock()
		now := w.called || w.handed != nil
		if !w.sooner.IsZero() && w.sooner.Before(due) {
			due = w.sooner
		}
		w.mu.Unlock()
		if now {
			return true
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-timer.C:
			if due.Equal(w.next) && w.restsOn() {
				due = w.next
				continue
			}
			return true
		case <-w.woken:
			timer.Stop()
			continue
		case <-ctx.Done():
		case <-closed:
		}
		timer.Stop()
		return false
	}
}

// Failure returns an error if nobody keeps the waiter live, because Redis does not answer.
func (w *Waiter) Failure() error {
	if !w.HasPosition() {
		return nil
	}
	return w.session.failure(w)
}

// QuitInbox makes the inbox forget the waiter. It does not give up the position in line.
func (w *Waiter) QuitInbox() {
	if w.HasPosition() {
		w.share.Leave(w.member)
		w.session.quit(w)
	}
}

// LeaveLasts returns for how long the waiter goes on leaving while nobody answers.
func (w *Waiter) LeaveLasts() time.Duration { return w.session.longest(w) + leaveLasts }

// Stays returns what to set if the waiter may still stand in line although nobody takes it out any more.
func (w *Waiter) Stays() *atomic.Bool {
	if !w.HasPosition() {
		return nil
	}
	return &w.session.stays
}

// Entry returns what names the waiter in its lines, as script.AndLeave takes it; "" for none.
func (w *Waiter) Entry() string {
	if w == nil {
		return ""
	}
	return w.entry
}
