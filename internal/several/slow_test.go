package several_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Servers that are much slower than a majority hold up nobody: a caller does not keep what the fast servers have granted
// until a slow one answers.
func TestQuorumSlowServersHoldUpNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size int
		late time.Duration
	}{{3, 20 * time.Millisecond}, {3, 400 * time.Millisecond}, {5, 120 * time.Millisecond}} {
		for _, opt := range []*redislock.Options{
			{Queue: true}, {RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)},
		} {
			t.Run(fmt.Sprintf("%d servers/%v/queue=%v", c.size, c.late, opt.Queue), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					servers, connect := memoryQuorum(t, c.size)
					for _, server := range servers[c.size/2+1:] {
						server.Slow(c.late)
					}
					start := time.Now()
					takeTurns(t, []*redislock.Client{connect(), connect(), connect(), connect()}, 5, opt)
					if took := time.Since(start); took > time.Second {
						t.Errorf("80 locks of 1 ms took %v", took)
					}
					calmDown(servers)
				})
			})
		}
	}
}

// The first calls of a program make connections, so they take longer than later ones. When one of them is answered, the
// others have not waited for too long.
func TestQuorumFirstCallsTakeLonger(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		servers, connect := memoryQuorum(t, 3)
		for _, server := range servers {
			server.Slow(150 * time.Millisecond)
		}
		locks := connect()
		obtainApart(t, locks, make([]time.Duration, 20)...)
		calmDown(servers)
	})
}

// An obtain waits longer for a server without which there is no majority than for one that is not needed.
func TestQuorumWaitsLongerForAMajority(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slow    int
		late    time.Duration
		taken   bool // by another
		first   bool // the quorum was never asked before
		fails   bool
		at, end time.Duration // how long the obtain takes
	}{
		{slow: 1, late: 200 * time.Millisecond, end: 50 * time.Millisecond},
		{slow: 1, late: 400 * time.Millisecond, taken: true, at: 100 * time.Millisecond, end: 120 * time.Millisecond},
		{slow: 2, late: 200 * time.Millisecond, at: 190 * time.Millisecond, end: 240 * time.Millisecond},
		{slow: 2, late: 400 * time.Millisecond, fails: true, at: 250 * time.Millisecond, end: 300 * time.Millisecond},
		{slow: 1, late: 400 * time.Millisecond, first: true, end: 50 * time.Millisecond},
		{slow: 1, late: 400 * time.Millisecond, first: true, taken: true, at: 250 * time.Millisecond, end: 300 * time.Millisecond},
		{slow: 2, late: 400 * time.Millisecond, first: true, at: 400 * time.Millisecond, end: 1300 * time.Millisecond},
		{slow: 2, late: time.Hour, first: true, fails: true, at: 2 * time.Second, end: 2050 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c.slow, " late by ", c.late, ", taken: ", c.taken, ", first: ", c.first), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				servers, connect := memoryQuorum(t, 3)
				locks := connect()
				if !c.first {
					getToKnow(t, locks)
				}
				for _, server := range servers[:c.slow] {
					server.Slow(c.late)
				}
				if c.taken {
					for _, server := range servers {
						if err := server.Memory.Set("a", "another's"); err != nil {
							t.Fatal(err)
						}
					}
				}
				start := time.Now()
				_, err := locks.Obtain(t.Context(), "a", time.Minute, nil)
				if took := time.Since(start); (err != nil) != (c.fails || c.taken) || took < c.at || took > c.end {
					t.Errorf("%v after %v", err, took)
				}
				calmDown(servers)
			})
		})
	}
}

// The later obtains find two of three servers silent for longer than an answer takes. They ask them all the same, because
// there is no majority without them. The first of these would be sent anyway, to see whether the servers answer.
func TestQuorumAsksSilentServersThatItNeeds(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		servers, connect := memoryQuorum(t, 3)
		locks := connect()
		getToKnow(t, locks)
		for _, server := range servers[:2] {
			server.Slow(200 * time.Millisecond)
		}
		obtainApart(t, locks, 0, 120*time.Millisecond, 130*time.Millisecond)
		calmDown(servers)
	})
}

// obtainApart obtains a lock of its own at each of these times from now on, without a strategy, and returns when all are there.
func obtainApart(t *testing.T, locks *redislock.Client, at ...time.Duration) {
	t.Helper()
	var wait sync.WaitGroup
	for i, began := range at {
		wait.Go(func() {
			time.Sleep(began)
			if _, err := locks.Obtain(t.Context(), fmt.Sprint("a", i), time.Minute, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

// takeTurns lets 16 callers take and release one key, so many times each.
func takeTurns(t *testing.T, clients []*redislock.Client, times int, opt *redislock.Options) {
	t.Helper()
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			for range times {
				lock, err := clients[i%len(clients)].Obtain(t.Context(), "a", 10*time.Second, opt)
				if err == nil {
					time.Sleep(time.Millisecond)
					err = lock.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

// calmDown makes the servers fast and waits until Clients can be closed: while go-redis waits for a subscription, it has a
// mutex locked that Close wants, and the clock of a bubble does not move meanwhile.
func calmDown(servers []*spec.MemoryServer) {
	for _, server := range servers {
		server.RemoveAll()
		server.Decide(nil)
		server.SetLatency(spec.UpTo(200 * time.Microsecond))
	}
	time.Sleep(10 * time.Second)
}

// If one server holds a key that nobody will release, a slow one decides, and in time is asked to.
func TestQuorumSlowServerDecides(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]*redislock.Options{
		"once": nil, "in line": {Queue: true}, "polling": {RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				servers, connect := memoryQuorum(t, 3)
				servers[2].Slow(120 * time.Millisecond)
				locks := connect()
				obtain := func(opt *redislock.Options) (took time.Duration) {
					start := time.Now()
					lock, err := locks.Obtain(t.Context(), "a", time.Minute, opt)
					took = time.Since(start)
					if err != nil {
						t.Fatal(err)
					}
					if err := lock.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					return took
				}
				for range 10 { // it gets to know the servers
					obtain(nil)
				}
				if err := servers[0].Memory.Set("a", "another's"); err != nil {
					t.Fatal(err)
				}
				if took := obtain(opt); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
				calmDown(servers)
			})
		})
	}
}

// getToKnow lets a Client measure how long its servers take.
func getToKnow(t *testing.T, locks *redislock.Client) {
	t.Helper()
	for range 15 {
		if err := pair(t.Context(), locks, "known", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

// If a slow server decides, a waiter does not give up what it has again and again before that server has answered.
func TestQuorumSlowServerDecidesSoonInLine(t *testing.T) {
	t.Parallel()
	for _, callers := range []int{1, 16} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				servers, connect := memoryQuorum(t, 3)
				servers[2].Slow(120 * time.Millisecond)
				locks := connect()
				getToKnow(t, locks)
				if err := servers[0].Memory.Set("a", "another's"); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				var mu sync.Mutex
				grants := 0
				var wait sync.WaitGroup
				for range callers {
					wait.Go(func() {
						for {
							lock, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Queue: true})
							if err != nil {
								return
							}
							mu.Lock()
							grants++
							mu.Unlock()
							if err := lock.Release(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wait.Wait()
				if grants < 10 {
					t.Errorf("%d grants in 8 s", grants)
				}
				calmDown(servers)
			})
		})
	}
}

// A strategy that ends does not end before a slow server has had time to decide.
func TestQuorumSlowServerDecidesAtLast(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 1, 3} {
		opt := &redislock.Options{
			RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(5*time.Millisecond), retries),
		}
		obtain := func(t *testing.T, locks *redislock.Client) {
			t.Helper()
			if err := pair(t.Context(), locks, "a", opt); err != nil {
				t.Error(err)
			}
		}
		t.Run(fmt.Sprintf("3 servers/%d retries", retries), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				servers, connect := memoryQuorum(t, 3)
				servers[2].Slow(120 * time.Millisecond)
				locks := connect()
				getToKnow(t, locks)
				if err := servers[0].Memory.Set("a", "another's"); err != nil {
					t.Fatal(err)
				}
				obtain(t, locks)
				calmDown(servers)
			})
		})
		t.Run(fmt.Sprintf("5 servers, one of them down/%d retries", retries), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				servers, connect := memoryQuorum(t, 5)
				servers[3].Slow(20 * time.Millisecond)
				servers[4].Slow(20 * time.Millisecond)
				locks := connect()
				getToKnow(t, locks)
				servers[0].Refuse()
				if err := servers[1].Memory.Set("a", "another's"); err != nil {
					t.Fatal(err)
				}
				obtain(t, locks)
				servers[0].Revive()
				calmDown(servers)
			})
		})
	}
}

// A slow server gets the keys of a lock although a call of an earlier round was under way to it when the lock was made. So
// one server that forgets does not break exclusion.
func TestQuorumSlowServerGetsTheKeysOfPollers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		servers, connect := memoryQuorum(t, 3)
		servers[2].Decide(func(m faultproxy.Message) faultproxy.Action { // it is far from the first two Clients, and near the third
			delay := 200 * time.Millisecond
			if m.Client == 3 {
				delay = 100 * time.Microsecond
			}
			return faultproxy.DelayRequest(delay).And(faultproxy.DelayReply(delay))
		})
		servers[2].SetLatency(nil)
		holder, poller, other := connect(), connect(), connect()
		for _, locks := range []*redislock.Client{holder, poller, other} {
			getToKnow(t, locks)
		}
		held, err := holder.Obtain(t.Context(), "a", time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		time.AfterFunc(450*time.Millisecond, func() { _ = held.Release(context.Background()) })
		lock, err := poller.Obtain(t.Context(), "a", time.Second,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(850 * time.Millisecond) // two round trips to the slow server
		servers[0].Memory.FlushAll()
		_, err = other.Obtain(t.Context(), "a", time.Minute, nil)
		if left := time.Until(lock.Until()); left <= 0 || !errors.Is(err, redislock.ErrNotObtained) {
			t.Errorf("%v, although the lock is valid for another %v", err, left)
		}
		calmDown(servers)
	})
}

// Callers that are refused again and again do not fill up the connections to a slow server, so a kept lock survives when
// another server is down.
func TestQuorumRefusalsDoNotPileUp(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		servers, _ := memoryQuorum(t, 3)
		servers[2].Slow(400 * time.Millisecond)
		clients := memoryClients(t, servers, 1, func(opt *redis.Options) { opt.PoolSize = 20 })
		locks := newQuorum(t, clients, redislock.WithSeparateCalls())
		getToKnow(t, locks)
		if _, err := locks.Obtain(t.Context(), "taken", time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		lock, err := locks.Obtain(t.Context(), "kept", 10*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		kept, stop := lock.KeepAlive(t.Context())
		defer stop()
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				for ctx.Err() == nil {
					_, _ = locks.Obtain(ctx, "taken", time.Minute, nil)
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		time.Sleep(10 * time.Second)
		servers[0].Refuse()
		wait.Wait()
		if err := context.Cause(kept); err != nil {
			t.Errorf("the kept lock is lost: %v", err)
		}
		stop()
		servers[0].Revive()
		calmDown(servers)
	})
}

// A server that has hung while many calls were under way is not taken for a slow one.
func TestQuorumServerThatHungIsNotSlow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		servers, connect := memoryQuorum(t, 3)
		locks := connect()
		getToKnow(t, locks)
		servers[2].Hang()
		var wait sync.WaitGroup
		for i := range 64 {
			wait.Go(func() {
				if err := pair(t.Context(), locks, fmt.Sprint(i), nil); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		time.Sleep(2500 * time.Millisecond)
		servers[2].Resume()
		time.Sleep(10 * time.Second)
		servers[2].Hang()
		if err := servers[0].Memory.Set("a", "another's"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := locks.Obtain(t.Context(), "a", time.Minute, nil); err == nil {
			t.Error("one of three servers has granted a lock")
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the refusal took %v", took)
		}
		servers[2].Resume()
		calmDown(servers)
	})
}

// A server that has not answered yet when the lock is made counts as soon as it has. So another one may hang right after
// that, and no call has to wait for it.
func TestQuorumCallsWaitForAHoldThatIsOnItsWay(t *testing.T) {
	for name, call := range map[string]func(context.Context, *redislock.Lock) error{
		"Refresh":           func(ctx context.Context, lock *redislock.Lock) error { return lock.Refresh(ctx, 2*time.Second, nil) },
		"Refresh to longer": func(ctx context.Context, lock *redislock.Lock) error { return lock.Refresh(ctx, time.Minute, nil) },
		"Release":           func(ctx context.Context, lock *redislock.Lock) error { return lock.Release(ctx) },
		"TTL": func(ctx context.Context, lock *redislock.Lock) error {
			left, err := lock.TTL(ctx)
			if err == nil && left <= 0 {
				err = redislock.ErrLockNotHeld
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				servers, connect := memoryQuorum(t, 3)
				locks := connect()
				getToKnow(t, locks)
				servers[2].Slow(60 * time.Millisecond)
				lock, err := locks.Obtain(t.Context(), "a", 2*time.Second, nil)
				if err != nil {
					t.Fatal(err)
				}
				servers[0].Hang()
				start := time.Now()
				err = call(context.Background(), lock)
				if took := time.Since(start); err != nil || took > 500*time.Millisecond {
					t.Errorf("%v after %v, although two servers answer", err, took)
				}
				servers[0].Resume()
				if err := lock.Release(t.Context()); err != nil && name != "Release" {
					t.Error(err)
				}
				calmDown(servers)
				for i, server := range servers {
					if left := server.Memory.Keys(); len(left) > 0 {
						t.Errorf("server %d still has %q", i+1, left)
					}
				}
			})
		})
	}
}

// A lock that has lapsed does not ask a slow server once more.
func TestQuorumLapsedLockAsksNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		servers, connect := memoryQuorum(t, 3)
		locks := connect()
		getToKnow(t, locks)
		for _, server := range servers[:2] {
			if err := server.Memory.Set("a", "another's"); err != nil {
				t.Fatal(err)
			}
		}
		servers[2].Slow(20 * time.Millisecond)
		time.AfterFunc(25*time.Millisecond, servers[2].Hang) // it has granted, and what gives that back is on its way
		time.AfterFunc(40*time.Millisecond, func() {
			servers[0].Memory.Del("a")
			servers[1].Memory.Del("a")
		})
		first, err := locks.Obtain(t.Context(), "a", time.Second,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(60 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(first.Until()) + 100*time.Millisecond)

		servers[2].SetLatency(nil)
		asked := servers[2].Add(anyones("obtain", 0, passes))
		servers[2].Resume()
		time.Sleep(5 * time.Second)
		if n := asked.Count(); n > 0 {
			t.Errorf("the server was asked %d times for a lock that has lapsed", n)
		}
		calmDown(servers)
	})
}

// A slow server whose call of an earlier round ends while the fencing token is minted is asked with the token of the lock.
func TestQuorumSlowServerIsAskedWithTheTokenOfTheLock(t *testing.T) {
	for trip := 40; trip < 60; trip += 2 {
		t.Run(fmt.Sprint(trip), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				servers, connect := memoryQuorum(t, 3)
				locks := connect()
				getToKnow(t, locks)
				if err := servers[0].Memory.Set("fence", "4000000000000000"); err != nil {
					t.Fatal(err)
				}
				for _, server := range servers {
					if err := server.Memory.Set("a", "another's"); err != nil {
						t.Fatal(err)
					}
				}
				servers[1].Slow(20 * time.Millisecond)
				servers[2].Slow(time.Duration(trip) * time.Millisecond)
				time.AfterFunc(36*time.Millisecond, func() {
					for _, server := range servers {
						server.Memory.Del("a")
					}
				})
				lock, err := locks.Obtain(t.Context(), "a", time.Minute,
					&redislock.Options{FenceKey: "fence", RetryStrategy: redislock.LinearBackoff(8 * time.Millisecond)})
				if err != nil {
					t.Fatal(err)
				}
				before, _ := servers[2].Memory.Get("a")
				for range 600 {
					if now, _ := servers[2].Memory.Get("a"); now != "" && now != before && now != lock.Token() {
						t.Fatalf("the slow server was asked with %q, and the lock has %q", now, lock.Token())
					}
					time.Sleep(time.Millisecond)
				}
				if err := lock.Release(t.Context()); err != nil {
					t.Error(err)
				}
				calmDown(servers)
			})
		})
	}
}
