package claim

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"
)

// An obtain with a custom token compares its keys with those of all work under that token. Pair by pair, as many keys as
// here took 5 s, during which no other work of the Client could begin or end.
func TestAwaitWithManyKeys(t *testing.T) {
	names := func(prefix string) []string {
		names := make([]string, 50_000)
		for i := range names {
			names[i] = prefix + strconv.Itoa(i)
		}
		return names
	}
	background, theirs := context.Background(), names("a")
	locks := &Ledger{Closed: make(chan struct{})}
	work := &Work{Token: "me", Keys: theirs}
	locks.Begin(work)

	began := time.Now()
	if err := locks.Await(background, "me", names("b")); err != nil {
		t.Errorf("other keys: %v", err)
	}
	if err := locks.Await(background, "you", theirs); err != nil {
		t.Errorf("another token: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}

	ended, cancel := context.WithCancel(background)
	cancel()
	if err := locks.Await(ended, "me", theirs[:1]); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx has ended: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- locks.Await(background, "me", append(names("b"), theirs[49_999])) }()
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

// An obtain does not wait for the refreshes that begin while it waits: an endless series of them would keep it waiting.
func TestAwaitAndEndlessRefreshes(t *testing.T) {
	keys := []string{"a"}
	locks := &Ledger{Closed: make(chan struct{})}
	begin := func() *Work {
		p := &Work{Token: "me", Keys: keys}
		locks.Begin(p)
		return p
	}
	first := begin()
	waited := make(chan error)
	go func() { waited <- locks.Await(context.Background(), "me", keys) }()
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
