package redislocktest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/redislocktest"
)

func TestTimePasses(t *testing.T) {
	locks := redislocktest.New(t)
	lock, err := locks.Obtain(t.Context(), "order:7", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redislock.New(locks.Redis()).Obtain(t.Context(), "order:7", time.Minute, nil); err != redislock.ErrNotObtained {
		t.Fatalf("a second holder got %v, want ErrNotObtained", err)
	}
	locks.FastForward(time.Minute)
	if err := lock.Release(t.Context()); !errors.Is(err, redislock.ErrLockNotHeld) {
		t.Fatalf("after a minute Release returned %v, want ErrLockNotHeld", err)
	}
}

// Those who hold a key together age by themselves.
func TestFastForwardAgesEachHold(t *testing.T) {
	locks := redislocktest.New(t)
	share := func(ttl time.Duration) *redislock.Lock {
		t.Helper()
		lock, err := locks.Obtain(t.Context(), "catalog", ttl, &redislock.Options{Shared: []string{"catalog"}})
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	short, long := share(time.Minute), share(time.Hour)
	locks.FastForward(time.Minute)
	if err := short.Release(t.Context()); !errors.Is(err, redislock.ErrLockNotHeld) {
		t.Errorf("after a minute, Release of the one for a minute returned %v, want ErrLockNotHeld", err)
	}
	if left, err := long.TTL(t.Context()); err != nil || left <= 58*time.Minute || left > 59*time.Minute {
		t.Errorf("after a minute, the one for an hour has %v left (%v)", left, err)
	}
	locks.FastForward(time.Hour)
	if names := locks.Redis().Keys(t.Context(), "*").Val(); len(names) > 0 {
		t.Errorf("after an hour, %q are left", names)
	}
}

func TestFakeTime(t *testing.T) {
	for range 3 { // nothing may be carried from one bubble into the next
		fakeTime(t)
	}
}

func fakeTime(t *testing.T) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		locks := redislocktest.New(t)
		lock, err := locks.Obtain(t.Context(), "order:7", time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		waited, err := locks.Obtain(t.Context(), "order:7", 2*time.Hour, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(time.Minute),
		})
		if err != nil {
			t.Fatal(err)
		}
		if passed := time.Since(start); passed < time.Hour || passed > time.Hour+time.Minute {
			t.Errorf("the wait took %v, want an hour", passed)
		}
		if time.Now().Before(lock.Until()) {
			t.Error("the first lock believes itself valid after it was taken over")
		}
		if err := waited.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Those who wait in line are granted in their order when time is moved forward, and at once.
func TestFastForwardWakesEveryWaiter(t *testing.T) {
	for _, opt := range []redislock.Options{
		{Queue: true}, {Queue: true, Metadata: "host/7"}, {Queue: true, FenceKey: "fence/7"}, {Queue: true, Token: "team/7"},
	} {
		bubble.Test(t, func(t *testing.T) {
			locks := redislocktest.New(t)
			if _, err := locks.Obtain(t.Context(), "order:7", time.Minute, nil); err != nil {
				t.Fatal(err)
			}
			granted := make(chan time.Time, 1)
			go func() {
				if _, err := locks.Obtain(t.Context(), "order:7", time.Minute, &opt); err != nil {
					t.Error(err)
				}
				granted <- time.Now()
			}()
			time.Sleep(10 * time.Second)
			began := time.Now()
			locks.FastForward(time.Minute)
			if late := (<-granted).Sub(began); late != 0 {
				t.Errorf("%+v: granted after %v, want at once", opt, late)
			}
		})
	}
}

func TestFastForwardKeepsTheLine(t *testing.T) {
	for range 20 { // without the line, the order is random
		bubble.Test(t, func(t *testing.T) {
			locks := redislocktest.New(t)
			if _, err := locks.Obtain(t.Context(), "order:7", time.Minute, nil); err != nil {
				t.Fatal(err)
			}
			granted := make(chan int, 2)
			for position := range 2 {
				go func() { // ends when granted
					keys := []string{"order:7", "other:" + string(rune('0'+position))}
					if _, err := locks.ObtainMulti(t.Context(), keys, time.Minute, &redislock.Options{Queue: true}); err != nil {
						t.Error(err)
					}
					granted <- position
				}()
				synctest.Wait()
			}
			for position := range 2 {
				time.Sleep(10 * time.Second)
				began := time.Now()
				locks.FastForward(50*time.Second - time.Millisecond)
				synctest.Wait()
				if len(granted) > 0 {
					t.Fatalf("position %d was granted a millisecond before the lock lapsed", <-granted)
				}
				locks.FastForward(time.Millisecond)
				synctest.Wait()
				if got := <-granted; got != position {
					t.Fatalf("position %d was granted, want %d", got, position)
				}
				if late := time.Since(began); late != 0 {
					t.Fatalf("position %d was granted after %v, want at once", position, late)
				}
			}
		})
	}
}
