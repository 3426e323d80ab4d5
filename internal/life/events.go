package life

import (
	"context"
	"time"
)

// Events are the events that the owner of a Client wants; nil for those that it does not want. The functions are called
// concurrently, and may call the library.
type Events struct {
	Refreshed func(ctx context.Context, e Refreshed)
	Restored  func(ctx context.Context, e Restored)
	Lost      func(ctx context.Context, e Lost)
	Released  func(ctx context.Context, e Released)
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
}
