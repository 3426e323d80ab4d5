package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/deadlock"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/several"
)

// DeadlockError is the error of an obtain that has waited in a circle: those who hold what it wants wait, directly or over
// others, for what its caller holds. It matches [ErrDeadlock] and [ErrNotObtained]. [Options.Queue] says when it comes.
//
// The caller should release what it holds, and begin again.
type DeadlockError struct {
	// Circle says who waits for whom. The first one is the obtain, which waits for the second one, and so on. The last one
	// waits for the obtain.
	Circle []Blocked
}

// Blocked is a member of the circle of a [DeadlockError].
type Blocked struct {
	Key      string // for which it waits, among others
	Token    string // of the lock of the next member that has Key; "" if the next member is only ahead of it in line
	Metadata string // of that lock, or of the one for which the next member waits
}

// Error names the keys and their holders. It shows at most the first six characters of a token.
func (e *DeadlockError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%v: deadlock: this call waits for ", ErrNotObtained)
	for i, b := range e.Circle {
		if i > 0 {
			text.WriteString(", who waits for ")
		}
		fmt.Fprintf(&text, "%q", b.Key)
		switch last := i == len(e.Circle)-1; {
		case last && b.Token != "":
			text.WriteString(", which this caller holds")
		case last:
			text.WriteString(", behind this call in line")
		case b.Token != "":
			fmt.Fprintf(&text, ", held by %s%s", fault.Printable(fault.Short(b.Token)), parenthesized(b.Metadata))
		default:
			fmt.Fprintf(&text, " behind another in line%s", parenthesized(b.Metadata))
		}
	}
	return text.String()
}

func parenthesized(metadata string) string {
	if metadata == "" {
		return ""
	}
	return " (" + fault.Printable(metadata) + ")"
}

// Is reports whether target is ErrDeadlock or ErrNotObtained.
func (e *DeadlockError) Is(target error) bool {
	return target == ErrDeadlock || target == ErrNotObtained
}

// holdings returns the locks that a caller holds as far as its ctx says so, and the process that runs it.
func holdings(ctx context.Context) (holds []script.Holding) {
	for _, owner := range life.Kept(ctx) {
		keys, token := owner.Names()
		holds = append(holds, script.Holding{Token: token, Keys: keys})
	}
	return append(holds, processHolds()...)
}

// processHolds returns the locks of those `redislock run` that this process runs under.
var processHolds = sync.OnceValue(func() []script.Holding { return script.ReadHoldings(os.Getenv(keyname.HoldsVariable)) })

const (
	// firstSearch is when a waiter that holds something first looks for a circle, and searchAgain how long it waits after that.
	// This doubles, up to lastSearch. The waiter that comes last closes a circle, so later searches find only what an error of
	// Redis or a clock has hidden.
	firstSearch = time.Second
	searchAgain = 1500 * time.Millisecond
	lastSearch  = 3 * time.Second

	// searchPatience bounds one search.
	searchPatience = 2 * time.Second
)

// circleWatch ends an obtain that waits in a circle.
type circleWatch struct {
	around context.Context // the ctx of the obtain
	ctx    context.Context // of its tries
	end    context.CancelCauseFunc
	timer  *time.Timer // starts the searches
	look   deadlock.Look
	waiter deadlock.Waiter
	tries  *several.Tries // know their ticket; nil at one place
	ticket atomic.Int64   // of the waiter at one place; 0 before it stands in line
}

// watchForCircle returns the ctx for the tries. If the caller holds something while it waits, a circle ends that.
func (o *obtaining) watchForCircle(ctx context.Context) context.Context {
	if len(o.holds) == 0 {
		return ctx
	}
	w := &circleWatch{around: ctx, look: o.client.glance, tries: o.several}
	w.waiter = deadlock.Waiter{Token: o.opt.Token, Limits: make(map[string]int, len(o.keys)), Holds: o.holds}
	for i, key := range o.keys {
		w.waiter.Limits[key] = 1
		if o.limits != nil {
			w.waiter.Limits[key] = o.limits[i]
		}
	}
	w.ctx, w.end = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(firstSearch+rand.N(firstSearch/8), w.watch)
	o.circle = w
	return w.ctx
}

// stop ends the watch. It does not wait for a search.
func (w *circleWatch) stop() {
	if w != nil {
		w.timer.Stop()
		w.end(nil)
	}
}

// note notes the ticket of the obtain at one place, after a refused try.
func (w *circleWatch) note(o *obtaining) {
	if w != nil && w.tries == nil {
		w.ticket.Store(o.one.Waiter.LastTicket())
	}
}

// found returns the circle that has ended the tries; nil if something else has ended them.
func (w *circleWatch) found() *DeadlockError {
	if w == nil {
		return nil
	}
	cause := context.Cause(w.ctx)
	found, is := cause.(*DeadlockError) //nolint:errorlint // another error may wrap that of an obtain around this one
	if !is || context.Cause(w.around) == cause {
		return nil
	}
	return found
}

// watch looks for a circle again and again, in a goroutine of its own, which ends with ctx.
func (w *circleWatch) watch() {
	for wait := searchAgain; ; wait = min(2*wait, lastSearch) {
		if found := w.search(); found != nil {
			w.end(found)
			return
		}
		timer := time.NewTimer(wait + rand.N(wait/3))
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// search looks once for a circle; nil if it has found none.
func (w *circleWatch) search() *DeadlockError {
	defer func() { _ = recover() }() // a hook has panicked; the tries call it as well
	ticket := w.ticket.Load()
	if w.tries != nil {
		ticket = w.tries.Ticket()
	}
	if ticket == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, searchPatience)
	defer cancel()
	circle, _ := deadlock.Search(ctx, w.look, &w.waiter, ticket) // after an error, the next search may find it
	if circle == nil {
		return nil
	}
	e := new(DeadlockError)
	for _, a := range circle {
		e.Circle = append(e.Circle, Blocked{Key: a.Key, Token: a.Holder, Metadata: a.Metadata})
	}
	return e
}
