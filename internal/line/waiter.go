package line

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

const (
	// leastLife is how long a waiter counts as live after its last try, if few wait. The scripts may set a longer time.
	leastLife = 3 * Interval

	// Interval is the longest time between the tries of a waiter, if few wait. Each try is a sign of life.
	Interval = time.Second

	// maxAbandoned bounds the abandoned tries of one waiter that may still run.
	maxAbandoned = 4
)

// Waiter is one obtain in line at one Redis. The script says how long the waiter waits for its next try. A message may end
// the wait, bring the next try forward, or bring the lock. A Waiter belongs to one goroutine at a time; messages come in
// others.
//
// A nil Waiter stands for an obtain that does not wait in line. HasPosition, LastTicket, Granted, Patience, Bear, TryAgain,
// PassOver and QuitInbox may be called for it. They do nothing, and return false, 0 or what they were given.
type Waiter struct {
	lines *Lines
	pace  retry.Strategy // shortens the time between tries if no message can come; nil leaves that time to the script
	woken chan struct{}  // has room for one

	// The fields below belong to the goroutine of the obtain.

	number   int64         // of the first member; 0 lets the inbox choose, and after that
	inbox    *inbox.Share  // nil before the first try
	member   *inbox.Member // likewise
	entry    string        // its entry in the lines; see internal/script/line.lua
	refused  bool          // some try was refused
	failures int           // before the first refusal; see Rest
	next     time.Time     // when to try next
	life     time.Duration // how long it is live after a try
	ticket   int64         // 0 for none yet
	usual    time.Duration // how long answers took lately, a moving average
	sent     time.Time     // when the last answered try was sent,
	served   int64         // and when the server ran it, in µs by the server's clock

	// What shows whether messages are missed; see Refuse and Granted.
	opened  int  // the subscription that was open before the present try was sent; 0 for none
	marked  int  // the same of the last answered try
	idle    bool // only a message could have made the present try succeed
	waiting bool // only a message can make the next try succeed before the interval is over

	mu     sync.Mutex // protects the fields below, which messages set
	called bool       // try now
	sooner time.Time  // try no later than this; zero for no limit
	handed *HandOff   // a release has handed its keys to the waiter; nil if no message says that
}

// New returns a waiter of the Client. With a nil pace, the scripts alone say how often it tries.
func (l *Lines) New(pace retry.Strategy) *Waiter {
	return &Waiter{lines: l, pace: pace, woken: make(chan struct{}, 1), life: leastLife}
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
	w.member, w.entry, w.marked = nil, "", 0
	w.sent = time.Time{} // the server has answered no try of the new entry
	w.mu.Lock()
	w.handed = nil
	w.mu.Unlock()
}

// Begin prepares a try: c is to obtain o, and to take a position in line if it is refused.
func (w *Waiter) Begin(o *script.Obtain, c *transport.Call) {
	if w.member == nil {
		w.inbox = w.lines.inboxFor(o.Keys.Names[0])
		if w.number > 0 {
			w.member = w.inbox.EnterAs(fmt.Sprintf("%016d", w.number), w.notify)
			w.number = 0
		} else {
			w.member = w.inbox.Enter(w.notify)
		}
		w.entry = w.member.ID() + o.Entry()
	}
	w.heed() // the try sees what earlier messages were about
	w.idle, w.waiting = w.waiting, false
	script.AndWait(c, w.entry, w.ticket, w.noteOpened(), o.Proposal)
}

// noteOpened notes which subscription is open now. It returns what a script is to know: whether one is open, as far as is
// known.
func (w *Waiter) noteOpened() bool {
	w.opened = w.inbox.Subscription()
	// On a Cluster, the subscription may be on another server than the keys. Then no script can know whether messages arrive.
	return w.opened != 0 && w.lines.Hub.redis.IsSingle()
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

// Life returns how long the waiter counts as live after its last try.
func (w *Waiter) Life() time.Duration { return w.life }

// interval returns the longest time between the tries of the waiter.
func (w *Waiter) interval() time.Duration { return w.life / 3 }

// Refuse notes the reply to a refused try that was sent at the given time. From the first refusal on, messages can wake the
// waiter. The inbox wakes it for another try when the subscription opens, which makes up for earlier messages.
func (w *Waiter) Refuse(sent time.Time, g *script.Grant) {
	now := time.Now()
	w.refused = true
	w.inbox.Listen()
	wait := w.interval() // while a Cluster slot moves, scripts cannot reach the lines, and the reply has no wait
	w.usual = (3*w.usual + now.Sub(sent)) / 4
	if g.Ticket > 0 {
		// If the waiter was live, a script has removed it because its message reached nobody, although the subscription was open.
		if g.Missing && w.listened() && sent.Sub(w.sent) < w.life-Interval/2 {
			w.inbox.Doubt(w.opened)
		}
		w.marked = w.opened
		w.ticket, w.served, w.sent = g.Ticket, g.Served, sent
		w.life = max(g.Life, leastLife)
		wait = max(g.Wait, time.Millisecond)
		w.waiting = wait >= w.interval() // otherwise a ttl ends by then, or another waiter is passed over
	}
	if wait >= w.interval() { // at random: waiters that were refused together must not try together
		wait -= rand.N(w.interval() / 4)
	}
	w.next = now.Add(wait)
}

// listened reports whether the same subscription has been open since the last answered try.
func (w *Waiter) listened() bool { return w.opened != 0 && w.opened == w.marked }

// Granted notes that the present try was granted. If only a message could have announced that and none has come, the message
// was missed. It may still be on its way, and then the inbox hears it.
func (w *Waiter) Granted() {
	if w != nil && w.idle && w.listened() {
		w.inbox.Miss(w.opened)
	}
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

// Rest sets when the next try is due after an error. A waiter that was refused tries once per Interval, to keep its
// position. A waiter that was never refused has none to keep. It tries soon, because most failovers take a second or two,
// and then less and less often. It does so at random moments, because many others may have failed at the same time.
func (w *Waiter) Rest(now time.Time) {
	wait := Interval
	if !w.refused {
		wait = min(firstRest<<min(w.failures, 10), wait)
		wait -= rand.N(wait / 4)
		w.failures++
	}
	w.next = now.Add(wait)
}

// TryAgain makes the next try due at once.
func (w *Waiter) TryAgain() {
	if w != nil {
		w.next = time.Now().Add(time.Millisecond)
	}
}

// Await waits until the next try is due, a message asks for a try, or a message brings the lock. It returns false if ctx
// ends or closed is closed first.
func (w *Waiter) Await(ctx context.Context, closed <-chan struct{}) bool {
	due := w.next
	if w.pace != nil && !w.inbox.Hears() {
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

// QuitInbox makes the inbox forget the waiter. It does not give up the position in line.
func (w *Waiter) QuitInbox() {
	if w.HasPosition() {
		w.inbox.Leave(w.member)
	}
}

// Entry returns what names the waiter in its lines, as script.AndLeave takes it; "" for none.
func (w *Waiter) Entry() string {
	if w == nil {
		return ""
	}
	return w.entry
}
