package topology

import (
	"context"
	"testing"
	"time"

	"github.com/redislock/redislock/torture/internal/plan"
)

func TestTheClockOfAServerMoves(t *testing.T) {
	if !CanMoveClocks() {
		t.Skip("clocks cannot be moved here")
	}
	s := start(t, "one").(*one)
	client := Connect(s.server)
	defer client.Close()
	ctx := t.Context()
	ahead := func() time.Duration {
		shown, err := client.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(shown)
	}
	expect := func(want time.Duration) {
		t.Helper()
		const near = 100 * time.Millisecond
		if got := ahead(); got < want-near || got > want+near {
			t.Errorf("the clock is %v ahead, want %v", got, want)
		}
	}
	expect(0)
	if err := client.Set(ctx, "k", "v", 10*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.clock.move(9500*time.Millisecond, 1); err != nil {
		t.Fatal(err)
	}
	expect(9500 * time.Millisecond)
	if left := client.PTTL(ctx, "k").Val(); left > 600*time.Millisecond {
		t.Errorf("the key has %v left", left)
	}
	if harm, err := s.Inject(ctx, plan.Fault{Kind: plan.ClockBack, Delay: 300 * time.Millisecond}); err != nil || harm.Everything {
		t.Errorf("%+v, %v", harm, err)
	}
	expect(9 * time.Second)
	if harm, err := s.Inject(ctx, plan.Fault{Kind: plan.ClockForward, Delay: 300 * time.Millisecond}); err != nil || !harm.Everything {
		t.Errorf("%+v, %v", harm, err)
	}
	expect(9500 * time.Millisecond)

	if err := s.clock.move(0, 11); err != nil { // a speed that shows
		t.Fatal(err)
	}
	before, began := ahead(), time.Now()
	time.Sleep(100 * time.Millisecond)
	after := ahead()
	if gained, passed := after-before, time.Since(began); gained < passed*9 || gained > passed*11 {
		t.Errorf("in %v the clock gained %v", passed, gained)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if harm, err := s.Inject(ended, plan.Fault{Kind: plan.ClockDrift, For: time.Hour}); err != nil || harm.Everything || s.clock.speed != 1 {
		t.Errorf("%+v, %v, speed %v", harm, err, s.clock.speed)
	}
}
