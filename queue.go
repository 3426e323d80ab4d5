package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// hasLine reports whether the key can have a line: not if it has a brace but no hash tag, for then no longer name would be
// in its slot.
func hasLine(key string) bool {
	if strings.IndexByte(key, '{') < 0 {
		return strings.IndexByte(key, '}') < 0
	}
	_, tagged := tag(key)
	return tagged
}

// writeLine writes the name of the line of a key, if it can have one. It is in the slot of the key on a Cluster and begins
// with the key, as an ACL may demand.
func writeLine(name *strings.Builder, key string) {
	if !hasLine(key) {
		return
	}
	name.WriteString(key)
	if strings.IndexByte(key, '{') < 0 {
		name.WriteByte('{')
		name.WriteString(key)
		name.WriteByte('}')
	}
	name.WriteString(reservedSuffix)
}

// lineOf returns the name of the line of a key, "" if it can have none.
func lineOf(key string) string {
	var name strings.Builder
	writeLine(&name, key)
	return name.String()
}

// box returns the keys, and after them the lines of those that have one, as the arguments of a command. They are made
// once for all calls of a lock, and the names of the lines in one piece.
func box(keys []string) []any {
	boxed := make([]any, len(keys), 2*len(keys))
	size := 0
	for i, key := range keys {
		boxed[i] = key
		size += 2*len(key) + len("{}") + len(reservedSuffix)
	}
	var names strings.Builder
	names.Grow(size)
	for _, key := range keys {
		start := names.Len()
		if writeLine(&names, key); names.Len() > start {
			boxed = append(boxed, names.String()[start:])
		}
	}
	return boxed
}

// checkLines returns an error if nobody can wait in line for one of the keys.
func checkLines(keys []string) error {
	for _, key := range keys {
		if !hasLine(key) {
			return invalid("key %q has a brace but no hash tag, so there is no place beside it for the line of Queue; "+
				"name it without braces, or with a tag, as in {order:7}:stock", key)
		}
	}
	return nil
}

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
	inbox *inbox
	pace  RetryStrategy // how long at most between tries, where no message can come; nil for no less than the script says
	woken chan struct{} // has room for one

	number, id string // in the inbox, and in the lines; "" before the first try

	// What follows belongs to the goroutine of the obtain.

	refused bool
	next    time.Duration // until the next try
	ticket  int64         // 0: none yet
}

func newWaiter(b *inbox) *waiter {
	return &waiter{inbox: b, woken: make(chan struct{}, 1)}
}

// begin prepares a try, and adds the arguments with which it takes a place in line if it is refused.
func (w *waiter) begin(args []any) []any {
	if w.id == "" {
		w.inbox.enter(w)
	}
	// What a message is about that came before the try, the try will see.
	select {
	case <-w.woken:
	default:
	}
	return append(args, w.id, w.ticket)
}

// isNew reports whether the obtain has not been refused a place yet.
func (w *waiter) isNew() bool { return w == nil || w.ticket == 0 }

// hasPlace reports whether the waiter may have a place in line.
func (w *waiter) hasPlace() bool { return w != nil && w.id != "" }

// refuse takes over what the script replied to a try that it refused. From the first refusal on the waiter can be woken;
// a message that came before the subscription is made up for by the try that follows that.
func (w *waiter) refuse(reply any) {
	w.refused = true
	w.inbox.listen()
	w.next = waiterInterval // while a slot of a Cluster moves, the lines cannot be reached
	if place, _ := reply.([]any); len(place) == 3 {
		wait, _ := place[1].(int64)
		w.ticket, _ = place[2].(int64)
		w.next = max(time.Duration(wait)*time.Millisecond, time.Millisecond)
	}
	if w.next >= waiterInterval { // waiters that were refused together are not to come back together
		w.next -= rand.N(waiterInterval / 4)
	}
}

// patience returns the ctx of one try. In line, a try that is not answered is left alone after a while, for the next to
// go out on another connection; a few at any one time, for each keeps its connection until the Redis client gives it up.
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
	if w == nil || !w.refused || isRedisError(err) && !isPassing(err) || errors.Is(err, redis.ErrClosed) {
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
	if w.pace != nil && !w.inbox.hears() {
		if pace := w.pace.NextBackoff(); pace > 0 {
			return min(w.next, pace)
		}
	}
	return w.next
}

// wake makes the waiter try now, or after the try that it is at.
func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// leave gives the number back. The place in line is another matter.
func (w *waiter) leave() {
	if w.hasPlace() {
		w.inbox.leave(w)
	}
}
