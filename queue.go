package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/transport"
)

const (
	// waiterLife is how long after its last try a waiter counts as live. The scripts have it too.
	waiterLife = 3 * time.Second

	// waiterInterval is the longest time between the tries of a waiter. Each is a sign of life.
	waiterInterval = time.Second

	// maxAdrift bounds the tries of one waiter that are abandoned at any one time.
	maxAdrift = 4
)

// waiter is an obtain that waits in line as soon as it is refused. The script says how long it is to wait for its next
// try, and a message may end the waiting. It is a RetryStrategy, which only ctx ends.
type waiter struct {
	inbox  *inbox.Inbox
	pace   RetryStrategy // how long at most between tries, where no message can come; nil for no less than the script says
	member *inbox.Member // nil before the first try

	// What follows belongs to the goroutine of the obtain.

	refused bool
	next    time.Duration // until the next try
	ticket  int64         // 0: none yet
}

func newWaiter(b *inbox.Inbox) *waiter { return &waiter{inbox: b} }

// begin prepares a try, and adds the arguments with which it takes a place in line if it is refused.
func (w *waiter) begin(args []any) []any {
	if w.member == nil {
		w.member = w.inbox.Enter()
	}
	// What a message is about that came before the try, the try will see.
	select {
	case <-w.member.Woken():
	default:
	}
	return append(args, w.id(), w.ticket)
}

// isNew reports whether the obtain has not been refused a place yet.
func (w *waiter) isNew() bool { return w == nil || w.ticket == 0 }

// hasPlace reports whether the waiter may have a place in line.
func (w *waiter) hasPlace() bool { return w != nil && w.member != nil }

// id returns the name of the waiter in the lines, once it has begun a try.
func (w *waiter) id() string { return w.member.ID() }

// woken returns a channel that has something to receive when the waiter is to try at once; nil for a nil waiter.
func (w *waiter) woken() <-chan struct{} {
	if !w.hasPlace() {
		return nil
	}
	return w.member.Woken()
}

// refuse takes over what the script replied to a try that it refused. From the first refusal on the waiter can be
// woken; a message that came before the subscription is made up for by the try that follows that.
func (w *waiter) refuse(g grant) {
	w.refused = true
	w.inbox.Listen()
	w.next = waiterInterval // while a slot of a Cluster moves, the lines cannot be reached
	if g.ticket > 0 {
		w.ticket = g.ticket
		w.next = max(g.wait, time.Millisecond)
	}
	if w.next >= waiterInterval { // waiters that were refused together are not to come back together
		w.next -= rand.N(waiterInterval / 4)
	}
}

// patience returns the ctx of one try. In line, a try that is not answered is left alone after a while, for the next to
// go out on another connection; a few at any one time, for each keeps its connection until the Redis client gives it
// up.
func (w *waiter) patience(ctx context.Context, adrift int) (context.Context, context.CancelFunc) {
	if w == nil || !w.refused || adrift >= maxAdrift {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, waiterInterval)
}

// errUnanswered is how such a try fails, and one that was not answered when ctx ended.
var errUnanswered = errors.New("no answer from Redis")

// bear reports whether the waiter is to go on after this error: one that may pass, which did not come at its first try.
func (w *waiter) bear(err error) bool {
	if w == nil || !w.refused || transport.IsFinal(err) {
		return false
	}
	w.next = waiterInterval
	if err == errUnanswered {
		w.next = time.Millisecond
	}
	return true
}

// NextBackoff returns the time until the next try.
func (w *waiter) NextBackoff() time.Duration {
	if w.pace != nil && !w.inbox.Hears() {
		if pace := w.pace.NextBackoff(); pace > 0 {
			return min(w.next, pace)
		}
	}
	return w.next
}

// leave ends the membership in the inbox. The place in line is another matter.
func (w *waiter) leave() {
	if w.hasPlace() {
		w.inbox.Leave(w.member)
	}
}
