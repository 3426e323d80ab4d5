package redislock

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"
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

	began := time.Now()
	if err := locks.waitForOwn(background, "me", names("b"), false); err != nil || work.isHurried() {
		t.Errorf("other keys: %v, hurried: %v", err, work.isHurried())
	}
	if err := locks.waitForOwn(background, "you", theirs, false); err != nil || work.isHurried() {
		t.Errorf("another token: %v, hurried: %v", err, work.isHurried())
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
	<-work.hurry
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
