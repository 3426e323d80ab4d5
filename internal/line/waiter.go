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
	leastLife = 3 * time.Second

	// Interval is the longest time between the tries of a waiter, if few wait. Each try is a sign of life.
	Interval = time.Second

	// maxAbandoned bounds the abandoned tries of one waiter that may still run.
	maxAbandoned = 4
)

// Waiter is one obtain in line at one Redis. The script says how long it is to wait for its next try. A message may end the
// wait, bring the next try forward, or bring the lock. A Waiter belongs to one goroutine at a time; messages come in others.
//
// A nil Waiter is that of an obtain that does not wait in line. It may be asked HasPlace and LastTicket, and told Granted,
// Patience, Bear, TryAgain, PassOver and QuitInbox, which do nothing for it.
type Waiter struct {
	lines *Lines
	pace  retry.Strategy // the longest time between tries, if no message can come; nil leaves it to the script
	woken chan struct{}  // has room for one

	// The fields below belong to the goroutine of the obtain.

	number   int64         // in the inbox, at first; 0 lets the inbox choose
	inbox    *inbox.Share  // nil before the first try
	member   *inbox.Member // likewise
	entry    string        // its entry in the lines; see line.lua
	refused  bool          // at least once
	failures int           // before the first refusal; see rest
	next     time.Time     // when to try next
	interval time.Duration // the longest time between tries
	life     time.Duration // how long it is live after a try
	ticket   int64         // 0: none yet
	usual    time.Duration // how long answers took lately, a moving average
	sent     time.Time     // when the last answered try was sent,
	served   int64         // and when the server ran it, in µs by the server's clock

	// What shows whether messages are missed; see Refuse and Granted.
	opened  int  // the subscription that was open when the present try was sent; 0 for none
	marked  int  // the one of the last answered try
	idle    bool // only a message could have made the present try succeed
	waiting bool // only a message can make the next try succeed before the interval is over

	mu     sync.Mutex // protects the fields below, which messages set
	called bool       // try now
	sooner time.Time  // try no later than this; zero for no limit
	handed *HandOff   // it was handed its keys; nil if it does not know of that
}

// New returns a waiter of the Client. A nil pace leaves it to the scripts how often it tries.
func (l *Lines) New(pace retry.Strategy) *Waiter {
	return &Waiter{lines: l, pace: pace, woken: make(chan struct{}, 1), interval: Interval, life: leastLife}
}

// Admit waits until the waiter may send a try for so many keys, and returns a function to call when that try has ended.
// If the waiter is handed its keys first, it returns that instead. It returns neither if ctx ends or closed is closed
// first. Only a few large tries go out at a time, because a server that is busy with many would answer none of them in
// time. Waiters that have a place do not queue behind those that want one, or they could lose theirs.
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
		case <-w.woken: // perhaps handed its keys
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

// Begin prepares a try: c is to obtain o, and to take a place in line if it is refused.
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
	w.heed() // the try will see what earlier messages were about
	w.idle, w.waiting = w.waiting, false
	script.AndWait(c, w.entry, w.ticket, w.isOpen(), o.Proposal)
}

// isOpen reports, for a script, whether the waiter's subscription is open, as far as is known.
func (w *Waiter) isOpen() bool {
	w.opened = w.inbox.Subscription()
	// On a Cluster, the subscription may be on another server than the keys. Then no script can tell whether messages arrive.
	return w.opened != 0 && w.lines.Hub.redis.IsSingle()
}

// LastTicket returns the ticket that the waiter had when it was last refused with a place in line; 0 for none.
func (w *Waiter) LastTicket() int64 {
	if w == nil {
		return 0
	}
	return w.ticket
}

// WasWoken reports whether a message has asked for a try now. sooner is the time by which a message has asked for one;
// zero for no limit.
func (w *Waiter) WasWoken() (called bool, sooner time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.called, w.sooner
}

// HasPlace reports whether the waiter may have a place in line.
func (w *Waiter) HasPlace() bool { return w != nil && w.member != nil }

// Life returns how long the waiter counts as live after its last try.
func (w *Waiter) Life() time.Duration { return w.life }

// Refuse notes the script's reply to a refused try that was sent at the given time. From the first refusal on, messages
// can wake the waiter. The try that follows a new subscription makes up for earlier messages.
func (w *Waiter) Refuse(sent time.Time, g *script.Grant) {
	now := time.Now()
	w.refused = true
	w.inbox.Listen()
	wait := w.interval // while a Cluster slot moves, scripts cannot reach the lines, and the reply has no wait
	w.usual = (3*w.usual + now.Sub(sent)) / 4
	if g.Ticket > 0 {
		// It was live, so it was removed because a message has reached nobody, although the subscription was open all the time.
		if g.Missing && w.listened() && sent.Sub(w.sent) < w.life-Interval/2 {
			w.inbox.Doubt(w.opened)
		}
		w.marked = w.opened
		w.ticket, w.served, w.sent = g.Ticket, g.Served, sent
		w.life = max(g.Life, leastLife)
		w.interval = w.life / 3
		wait = max(g.Wait, time.Millisecond)
		w.waiting = wait >= w.interval // otherwise a ttl ends, or another waiter will be dead
	}
	if wait >= w.interval { // at random: waiters that were refused together must not try together
		wait -= rand.N(w.interval / 4)
	}
	w.next = now.Add(wait)
}

// listened reports whether the same subscription has been open since the last answered try.
func (w *Waiter) listened() bool { return w.opened != 0 && w.opened == w.marked }

// Granted notes that the present try was granted. Where only a message could have told the waiter of its turn and none has
// come, that message was missed. It may still be on its way, and then the inbox hears it.
func (w *Waiter) Granted() {
	if w != nil && w.idle && w.listened() {
		w.inbox.Miss(w.opened)
	}
}

// Patience returns the ctx of one try. In line, the waiter abandons a try that is not answered for a while, and sends
// the next one on another connection. It does so only a few times, because each abandoned try keeps its connection
// until the Redis client gives it up. Where answers take long, the waiter is patient for longer: more tries would make
// that worse.
func (w *Waiter) Patience(ctx context.Context, abandoned int) (context.Context, context.CancelFunc) {
	if w == nil || !w.refused || abandoned >= maxAbandoned {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(Interval, 4*w.usual))
}

// Bear reports whether the waiter goes on after this error: only if the error may pass. Before the first refusal, only a
// waiter with a deadline goes on, because a wrong address would make any other wait for ever.
func (w *Waiter) Bear(ctx context.Context, err error) bool {
	if w == nil || transport.IsFinal(err) || !w.refused && !fault.HasDeadline(ctx) {
		return false
	}
	w.Rest(time.Now())
	return true
}

// firstRest is how long a waiter that was never refused waits after its first error.
const firstRest = 50 * time.Millisecond

// Rest sets when the next try is due after an error. A waiter with a place in line tries each interval. One that was never
// refused has no place to keep. It comes back soon, because most failovers take a second or two, and then less and less
// often. It does so at random moments, because many others may have failed at the same time.
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

// Await waits until the next try is due or a message asks for one. It returns false if ctx ends or closed is closed
// first.
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

// wake makes the waiter try now, or after its present try.
func (w *Waiter) wake() {
	w.mu.Lock()
	w.called = true
	w.mu.Unlock()
	w.signal()
}

// heed forgets what messages have asked for.
func (w *Waiter) heed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.called || !w.sooner.IsZero() || w.handed != nil {
		w.waiting = false
	}
	w.called, w.sooner = false, time.Time{}
}

// signal makes Await check what a message has set.
func (w *Waiter) signal() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// QuitInbox makes the inbox forget the waiter. It does not give up the place in line.
func (w *Waiter) QuitInbox() {
	if w.HasPlace() {
		w.inbox.Leave(w.member)
	}
}

// Leave makes a release also take the waiter out of the lines.
func (w *Waiter) Leave(c *transport.Call) { script.AndLeave(c, w.entry) }
