package life

import (
	"context"
	"sync"
	"time"
)

// Events are the events that the owner of a Client wants; nil for those that it does not want. The functions are called
// concurrently, and may call the library.
type Events struct {
	Refreshed func(ctx context.Context, e Refreshed)
	Restored  func(ctx context.Context, e Restored)
	Lost      func(ctx context.Context, e Lost)
	Released  func(ctx context.Context, e Released)

	mu      sync.Mutex // protects the fields below
	waiting []func()   // see Later
	sending bool       // a goroutine calls what waits
}

// Later calls send in a goroutine, after everything that it was given before has returned. So a function of the owner that
// blocks holds up no renewal, neither of this Client nor of another one. Of one lock, only few calls may wait at a time.
func (e *Events) Later(send func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(e.waiting, send)
	if !e.sending {
		e.sending = true
		go e.send() // ends when nothing waits
	}
}

// send calls what waits.
func (e *Events) send() {
	defer func() { // a function of the owner may have called runtime.Goexit
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.sending = len(e.waiting) > 0; e.sending {
			go e.send()
		}
	}()
	for next := e.next(); next != nil; next = e.next() {
		next()
	}
}

// next takes what is to be called next; nil for nothing.
func (e *Events) next() func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 {
		return nil
	}
	first := e.waiting[0]
	e.waiting[0] = nil
	e.waiting = e.waiting[1:]
	return first
}

// LaterRefreshed sends the event of a renewal later. If the event of an earlier renewal of the lock still waits, there
// is none for this one. So a slow receiver is given no more events than there are locks.
func (e *Events) LaterRefreshed(ctx context.Context, l *Life, event Refreshed) {
	if e.Refreshed == nil || l.setWaits(true) {
		return
	}
	e.Later(func() {
		l.setWaits(false)
		e.Refreshed(ctx, event)
	})
}

// setWaits notes whether the event of a renewal waits to be sent, and returns whether one did before.
func (l *Life) setWaits(waits bool) (before bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	before, l.waits = l.waits, waits
	return before
}

// LaterRestored is SendRestored, later.
func (e *Events) LaterRestored(ctx context.Context, keys, back []string) {
	if len(back) > 0 && e.Restored != nil {
		e.Later(func() { e.SendRestored(ctx, keys, back) })
	}
}

// LaterLost is SendLost, later.
func (e *Events) LaterLost(ctx context.Context, lost *Lost) {
	if lost != nil {
		e.Later(func() { e.SendLost(ctx, lost) })
	}
}

// SendRestored sends the event that a server which has forgotten keys has them again; nil is none.
func (e *Events) SendRestored(ctx context.Context, keys, back []string) {
	if len(back) > 0 && e.Restored != nil {
		e.Restored(ctx, Restored{Keys: keys, Back: back})
	}
}

// SendLost sends the event; nil is none.
func (e *Events) SendLost(ctx context.Context, lost *Lost) {
	if lost != nil {
		e.Lost(ctx, *lost)
	}
}

// Refreshed is the end of a Refresh or of a renewal. Its fields are those of Refreshed in the root.
type Refreshed struct {
	Keys    []string
	Renewal bool
	TTL     time.Duration
	Left    time.Duration
	Err     error
}

// Restored says that keys were put back at a server that had forgotten them. Its fields are those of Restored in the root.
type Restored struct {
	Keys []string
	Back []string
}

// Lost is the end of a hold that was lost. Its fields are those of Lost in the root.
type Lost struct {
	Keys     []string
	LostKeys []string
	Cause    Cause
	Held     time.Duration
	Err      error
}

// Released is the end of a Release. Its fields are those of Released in the root.
type Released struct {
	Keys []string
	Held time.Duration
	Wait time.Duration
	Err  error
}

// Cause is how a lock was lost.
type Cause int

// The causes of a loss.
const (
	Gone   Cause = iota // keys are gone, and no other holder has any
	Taken               // another holder has some of the keys
	Lapsed              // not known: the validity ended without a renewal
)

// Loss is what a lock has lost.
type Loss struct {
	Cause Cause
	Keys  []string // nil for Lapsed
	Open  bool     // a Release could not free all other keys, and may be called again
}
