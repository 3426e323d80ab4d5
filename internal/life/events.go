package life

import (
	"context"
	"time"
)

// Events is what the owner of a Client wants to be told; nil for what it does not. Its functions are called concurrently,
// and may call the library.
type Events struct {
	Refreshed func(ctx context.Context, e Refreshed)
	Lost      func(ctx context.Context, e Lost)
	Released  func(ctx context.Context, e Released)
}

// Refreshed is the end of a Refresh or of a renewal. Its fields are those of Refreshed in the root.
type Refreshed struct {
	Keys    []string
	Renewal bool
	TTL     time.Duration
	Left    time.Duration
	Err     error
}

// Lost is the end of a hold that was lost; see Lost in the root.
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
	Gone   Cause = iota // keys are gone, and nobody else holds any
	Taken               // another holder has some of them
	Lapsed              // nobody knows, because the validity ended without a renewal
)

// Loss is what was found lost.
type Loss struct {
	Cause Cause
	Keys  []string // nil for Lapsed
}

// endHold notes that the end of the present hold is told. It returns how long the hold lasted, or 0 if it was told before.
// The caller holds l.Mu.
func (l *Life) endHold(end time.Time) time.Duration {
	if l.told {
		return 0
	}
	l.told = true
	return max(end.Sub(l.Since), 1) // 0 means that it was told before
}

// endLost is endHold for a lock that was lost. It returns the event to tell after Life.Mu is unlocked, or nil for none. The
// caller holds Life.Mu.
func endLost(b Bearer, loss Loss, err error) *Lost {
	l, end := b.Handle(), time.Now()
	if l.IsReleased() {
		end = l.released
	}
	held := l.endHold(end)
	if held == 0 || b.Events().Lost == nil {
		return nil
	}
	keys, _ := b.Names()
	return &Lost{Keys: keys, LostKeys: loss.Keys, Cause: loss.Cause, Held: held, Err: err}
}
