package redislock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/bubble"
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
	locks := &place{closed: make(chan struct{})}
	work := &pending{token: "me", keys: theirs, hurry: make(chan struct{})}
	locks.pendings.begin(work)
	hurried := make(chan struct{})
	go func() { // the work pauses
		<-work.hurry
		close(hurried)
	}()

	began := time.Now()
	if err := locks.waitForOwn(background, "me", names("b"), false); err != nil || isClosed(hurried) {
		t.Errorf("other keys: %v, hurried: %v", err, isClosed(hurried))
	}
	if err := locks.waitForOwn(background, "you", theirs, false); err != nil || isClosed(hurried) {
		t.Errorf("another token: %v, hurried: %v", err, isClosed(hurried))
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}

	ended, cancel := context.WithCancel(background)
	cancel()
	if err := locks.waitForOwn(ended, "me", theirs[:1], false); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx has ended: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- locks.waitForOwn(background, "me", append(names("b"), theirs[49_999]), false) }()
	<-hurried
	select {
	case err := <-waited:
		t.Errorf("returned before the work had ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	locks.pendings.end(work)
	if err := <-waited; err != nil {
		t.Errorf("the work has ended: %v", err)
	}
	if locks.pendings.any() {
		t.Error("work is left")
	}
}

// While obtains wait for work, its pauses are short, but not so short that the work would send without a pause. When the last
// one gives up, they are as long as ever.
func TestWaitForOwnHurriesPauses(t *testing.T) {
	for _, obtains := range []int{1, 100} {
		bubble.Test(t, func(t *testing.T) {
			locks, keys := &place{closed: make(chan struct{})}, []string{"a"}
			work := &pending{token: "me", keys: keys, hurry: make(chan struct{})}
			locks.pendings.begin(work)
			const tick = time.Millisecond
			ctx, cancel := context.WithTimeout(context.Background(), time.Second+tick/2)
			defer cancel()
			began := time.Now()
			var waiting sync.WaitGroup
			for i := range obtains {
				waiting.Go(func() {
					time.Sleep(time.Duration(i) * tick)
					if err := locks.waitForOwn(ctx, "me", keys, true); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%d obtains: %v", obtains, err)
					}
				})
			}
			pauses := 0
			for paused := (&cleanup{pending: work}); ; pauses++ {
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
			locks.pendings.end(work)
		})
	}
}

// An obtain does not wait for the refreshes that begin while it waits: an endless series of them would keep it waiting.
func TestWaitForOwnAndEndlessRefreshes(t *testing.T) {
	keys := []string{"a"}
	locks := &place{closed: make(chan struct{})}
	begin := func() *pending {
		p := &pending{token: "me", keys: keys}
		locks.pendings.begin(p)
		return p
	}
	first := begin()
	waited := make(chan error)
	go func() { waited <- locks.waitForOwn(context.Background(), "me", keys, false) }()
	select {
	case err := <-waited:
		t.Fatalf("returned before the first refresh had ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	second := begin()
	locks.pendings.end(first)
	if err := <-waited; err != nil {
		t.Errorf("the first refresh has ended: %v", err)
	}
	locks.pendings.end(second)
}
