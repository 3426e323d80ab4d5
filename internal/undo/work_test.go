package undo

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/testing/bubble"
)

// An obtain with a custom token compares its keys with those of all work under that token. Pair by pair, as many keys as
// here took 5 s, during which no other cleanup of the Client could begin or end.
func TestWaitForOwnWithManyKeys(t *testing.T) {
	names := func(prefix string) []string {
		names := make([]string, 50_000)
		for i := range names {
			names[i] = prefix + strconv.Itoa(i)
		}
		return names
	}
	background, theirs := context.Background(), names("a")
	locks := &Cleanups{Closed: make(chan struct{})}
	work := &Work{Token: "me", Keys: theirs, Hurry: make(chan struct{})}
	locks.Begin(work)
	hurried := make(chan struct{})
	go func() { // the work pauses
		<-work.Hurry
		close(hurried)
	}()

	began := time.Now()
	if err := locks.WaitForOwn(background, "me", names("b"), false); err != nil || fault.IsClosed(hurried) {
		t.Errorf("other keys: %v, hurried: %v", err, fault.IsClosed(hurried))
	}
	if err := locks.WaitForOwn(background, "you", theirs, false); err != nil || fault.IsClosed(hurried) {
		t.Errorf("another token: %v, hurried: %v", err, fault.IsClosed(hurried))
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}

	ended, cancel := context.WithCancel(background)
	cancel()
	if err := locks.WaitForOwn(ended, "me", theirs[:1], false); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx has ended: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- locks.WaitForOwn(background, "me", append(names("b"), theirs[49_999]), false) }()
	<-hurried
	select {
	case err := <-waited:
		t.Errorf("returned before the work had ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	locks.End(work)
	if err := <-waited; err != nil {
		t.Errorf("the work has ended: %v", err)
	}
	if locks.IsBusy() {
		t.Error("work is left")
	}
}

// While obtains wait for work, its pauses are short, but not so short that the work would send without a pause. When the
// last one gives up, they are as long as ever.
func TestWaitForOwnHurriesPauses(t *testing.T) {
	for _, obtains := range []int{1, 100} {
		bubble.Test(t, func(t *testing.T) {
			locks, keys := &Cleanups{Closed: make(chan struct{})}, []string{"a"}
			work := &Work{Token: "me", Keys: keys, Hurry: make(chan struct{})}
			locks.Begin(work)
			const tick = time.Millisecond
			ctx, cancel := context.WithTimeout(context.Background(), time.Second+tick/2)
			defer cancel()
			began := time.Now()
			var waiting sync.WaitGroup
			for i := range obtains {
				waiting.Go(func() {
					time.Sleep(time.Duration(i) * tick)
					if err := locks.WaitForOwn(ctx, "me", keys, true); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%d obtains: %v", obtains, err)
					}
				})
			}
			pauses := 0
			for paused := (&Cleanup{Work: work}); ; pauses++ {
				before := time.Now()
				if locks.pause(paused, time.Minute); time.Since(before) >= time.Minute {
					break
				}
				if took := time.Since(before); took > hurriedPause || time.Since(began) > time.Second {
					t.Errorf("%d obtains: a pause of %v ended after %v", obtains, took, time.Since(began))
				}
			}
			if most := int(2 * time.Second / hurriedPause); pauses < most/2 || pauses > most {
				t.Errorf("%d obtains ended %d pauses in a second", obtains, pauses)
			}
			waiting.Wait()
			locks.End(work)
		})
	}
}

// An obtain does not wait for the refreshes that begin while it waits: an endless series of them would keep it waiting.
func TestWaitForOwnAndEndlessRefreshes(t *testing.T) {
	keys := []string{"a"}
	locks := &Cleanups{Closed: make(chan struct{})}
	begin := func() *Work {
		p := &Work{Token: "me", Keys: keys}
		locks.Begin(p)
		return p
	}
	first := begin()
	waited := make(chan error)
	go func() { waited <- locks.WaitForOwn(context.Background(), "me", keys, false) }()
	select {
	case err := <-waited:
		t.Fatalf("returned before the first refresh had ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	second := begin()
	locks.End(first)
	if err := <-waited; err != nil {
		t.Errorf("the first refresh has ended: %v", err)
	}
	locks.End(second)
}
