package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/transport"
)

const (
	// waiterLife is how long after its last try a waiter counts as live where few wait; the scripts say for how long.
	waiterLife = 3 * time.Second

	// waiterInterval is the longest time between the tries of a waiter where few wait. Each is a sign of life.
	waiterInterval = time.Second

	// maxAdrift bounds the tries of one waiter that are abandoned at any one time.
	maxAdrift = 4

	// bulk is from how many keys on a try of a waiter takes a while, and maxBulk how many of those one Client sends at once.
	bulk, maxBulk = 256, 2

	// entryMetadata is how many bytes of metadata a place in line shows. A waiter with more is not handed its keys.
	entryMetadata = 1024
)

// lines is what the waiters of a Client have in common.
type lines struct {
	inbox *inbox.Inbox
	local bool // the inbox listens at the server that runs the scripts, so that one knows who listens

	// Tries for many keys take turns; see admit.
	entering, staying chan struct{}
}

func newLines(redis *transport.Redis, linger time.Duration) *lines {
	return &lines{
		inbox: inbox.New(redis, randomToken(), linger), local: redis.IsSingle(),
		entering: make(chan struct{}, maxBulk), staying: make(chan struct{}, maxBulk),
	}
}

// subscription returns the number of the present subscription; 0 if there is none, or if it may be on another server than
// the keys: then nobody there can tell whether messages arrive.
func (l *lines) subscription() int {
	if !l.local {
		return 0
	}
	return l.inbox.Subscription()
}

// waiter is the place in line of one obtain. The script says how long it is to wait for its next try; a message may end
// the waiting, bring the next try forward, or bring the lock.
type waiter struct {
	lines *lines
	pace  RetryStrategy // how long at most between tries, where no message can come; nil for no less than the script says
	woken chan struct{} // has room for one

	// What follows belongs to the goroutine of the obtain.

	member     *inbox.Member // nil before the first try
	entry      string        // what stands in the lines; see line.lua
	refused    bool          // at least once
	next       time.Time     // when to try next
	interval   time.Duration // between tries at most
	life       time.Duration // how long it is live without any
	ticket     int64         // 0: none yet
	usual      time.Duration // how long answers took lately
	sent       time.Time     // when the last answered try was sent,
	served     int64         // and when that was served, in µs by the clock of the server
	opened     int           // the subscription that it has claimed to be open then; 0 for none
	distrusted int           // a subscription whose messages do not reach it; 0 for none

	mu     sync.Mutex // protects what follows, which messages bring
	called bool       // it is to try now
	sooner time.Time  // it is to try no later than that; zero for no limit
	handed *handOff   // the keys are its own; nil if that is not known
}

func newWaiter(l *lines) *waiter {
	return &waiter{lines: l, woken: make(chan struct{}, 1), interval: waiterInterval, life: waiterLife}
}

// admit waits until the waiter may send a try for so many keys, and returns what to call when that has ended; nil if ctx has
// ended or closed is closed before. Few large tries go out at a time: a server that is busy with many would answer none of
// them in time. Those who have a place do not wait behind those who want one, lest they lose theirs.
func (w *waiter) admit(ctx context.Context, closed <-chan struct{}, keys int) (done func()) {
	if keys < bulk {
		return func() {}
	}
	slots := w.lines.entering
	if w.refused {
		slots = w.lines.staying
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }
	case <-ctx.Done():
	case <-closed:
	}
	return nil
}

// renew makes the waiter another one, with the ticket that it has. Its entry is written anew at the next try.
func (w *waiter) renew() {
	w.leave()
	w.member, w.entry, w.opened = nil, "", 0
	w.mu.Lock()
	w.handed = nil
	w.mu.Unlock()
}

// begin prepares a try of the obtain, and adds the arguments with which it takes a place in line if it is refused.
func (w *waiter) begin(o *obtaining, args []any) []any {
	if w.member == nil {
		w.member = w.lines.inbox.Enter(w.notify)
		w.entry = w.member.ID() + o.entry()
	}
	// What a message is about that came before the try, the try will see.
	w.mu.Lock()
	w.called, w.sooner = false, time.Time{}
	w.mu.Unlock()
	var open any = "0"
	w.opened = w.lines.subscription()
	if w.opened != 0 && w.opened != w.distrusted {
		open = "1"
	} else {
		w.opened = 0
	}
	return append(args, w.entry, w.ticket, open)
}

// entry returns what follows the id of the waiter in its entry: how many keys it wants, 0 if it must not be handed them;
// its ttl; its fence key; and the value that its keys are to hold.
func (o *obtaining) entry() string {
	wants, metadata := len(o.keys), o.metadata
	if len(metadata) > entryMetadata {
		wants, metadata = 0, metadata[:entryMetadata]
	}
	if o.custom { // an earlier hold with the token may have keys that no hand-off must touch
		wants = 0
	}
	value := o.token
	if metadata != "" {
		value += " " + metadata
	}
	return fmt.Sprintf(" %d %d %d %s%s", wants, o.ttl.Milliseconds(), len(o.fenceKey), o.fenceKey, value)
}

// isNew reports whether the obtain has not been refused a place yet.
func (w *waiter) isNew() bool { return w == nil || w.ticket == 0 }

// hasPlace reports whether the waiter may have a place in line.
func (w *waiter) hasPlace() bool { return w != nil && w.member != nil }

// refuse takes over what the script replied to a try that it refused, which was sent at that time. From the first refusal
// on the waiter can be woken; a message that came before the subscription is made up for by the try that follows that.
func (w *waiter) refuse(sent time.Time, g grant) {
	now := time.Now()
	w.refused = true
	w.lines.inbox.Listen()
	wait := w.interval // while a slot of a Cluster moves, the lines cannot be reached
	w.usual = (3*w.usual + now.Sub(sent)) / 4
	if g.ticket > 0 {
		if g.missing && w.opened != 0 && sent.Sub(w.sent) < w.life-waiterInterval/2 {
			w.distrusted = w.opened // it was live, so a script removed it because a message reached nobody
		}
		w.ticket, w.served, w.sent = g.ticket, g.served, sent
		w.life = max(g.life, waiterLife)
		w.interval = w.life / 3
		wait = max(g.wait, time.Millisecond)
	}
	if wait >= w.interval { // waiters that were refused together are not to come back together
		wait -= rand.N(w.interval / 4)
	}
	w.next = now.Add(wait)
}

// patience returns the ctx of one try. In line, a try that is not answered is left alone after a while, for the next to
// go out on another connection; a few times, for each keeps its connection until the Redis client gives it up. Where
// answers take long, a waiter is patient for longer: more tries would make that worse.
func (w *waiter) patience(ctx context.Context, adrift int) (context.Context, context.CancelFunc) {
	if w == nil || !w.refused || adrift >= maxAdrift {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(waiterInterval, 4*w.usual))
}

// errUnanswered is how such a try fails, and one that was not answered when ctx ended.
var errUnanswered = errors.New("no answer from Redis")

// bear reports whether the waiter is to go on after this error: one that may pass, which did not come at its first try.
func (w *waiter) bear(err error) bool {
	if w == nil || !w.refused || transport.IsFinal(err) {
		return false
	}
	w.next = time.Now().Add(waiterInterval)
	if err == errUnanswered {
		w.next = time.Now().Add(time.Millisecond)
	}
	return true
}

// await waits until the next try is due, or a message asks for one. It returns false if ctx ends or closed is closed
// before that.
func (w *waiter) await(ctx context.Context, closed <-chan struct{}) bool {
	due := w.next
	if w.pace != nil && !w.lines.inbox.Hears() {
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

// wake makes the waiter try now, or after the try that it is at.
func (w *waiter) wake() {
	w.mu.Lock()
	w.called = true
	w.mu.Unlock()
	w.signal()
}

// signal lets await look again.
func (w *waiter) signal() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// leave gives the number back. The place in line is another matter.
func (w *waiter) leave() {
	if w.hasPlace() {
		w.lines.inbox.Leave(w.member)
	}
}
