package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// contexts notes the ctx of each call.
type contexts struct {
	mu    sync.Mutex
	calls map[context.Context]int
}

// locker returns a locker that locks nothing. A pair takes it a millisecond.
func (c *contexts) locker() *locker {
	return &locker{pair: func(ctx context.Context, _ []string) error {
		time.Sleep(time.Millisecond)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[ctx]++
		return ctx.Err()
	}}
}

func TestBurstGivesEachGoroutineACtxThatLastsAsLong(t *testing.T) {
	seen := contexts{calls: map[context.Context]int{}}
	b := newBurst(cancellable, seen.locker(), keySets(3, 1))
	if _, err := b.run(20 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if len(seen.calls) != 3 {
		t.Errorf("%d contexts for 3 goroutines", len(seen.calls))
	}
	pairs := 0
	for ctx, calls := range seen.calls {
		pairs += calls
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("after the burst, a ctx ended with %v", ctx.Err())
		}
	}
	if got := len(b.merged()); got != pairs {
		t.Errorf("%d latencies of %d pairs", got, pairs)
	}
}

func TestBackgroundCannotBeCancelled(t *testing.T) {
	ctx, cancel := background()
	cancel()
	if ctx.Done() != nil {
		t.Error("the ctx can be cancelled")
	}
}
