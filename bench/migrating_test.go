package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// What docs/migrating.md says of programs that use this library, bsm/redislock and redsync on the same Redis.

const key = "order:7"

// library acquires key, in one try, and returns how to release it. It returns an error if the key is taken.
type library func() (release func() error, err error)

// libraries returns the three libraries on the servers at addrs; bsm/redislock only if there is one.
func libraries(t *testing.T, addrs []string) map[string]library {
	t.Helper()
	ctx := t.Context()
	clients, closers := newGoRedisEach(addrs)
	var ours *redislock.Client
	all := map[string]library{}
	if len(addrs) == 1 {
		ours = redislock.New(clients[0])
		all["bsm"] = func() (func() error, error) {
			lock, err := bsm.Obtain(ctx, clients[0], key, time.Minute, &bsm.Options{Metadata: `{"host":"api-3"}`})
			return func() error { return lock.Release(ctx) }, err
		}
		all["bsm, several keys"] = func() (func() error, error) {
			lock, err := bsm.ObtainMulti(ctx, clients[0], []string{"item:1", key, "item:2"}, time.Minute, nil)
			return func() error { return lock.Release(ctx) }, err
		}
	} else {
		servers := make([]redislock.RedisClient, len(clients))
		for i, client := range clients {
			servers[i] = client
		}
		ours = redislock.NewQuorum(servers)
	}
	all["this"] = func() (func() error, error) {
		lock, err := ours.Obtain(ctx, key, time.Minute, nil)
		return func() error { return lock.Release(ctx) }, err
	}
	all["this, several keys"] = func() (func() error, error) {
		lock, err := ours.ObtainMulti(ctx, []string{"item:3", "item:4", key}, time.Minute, nil)
		return func() error { return lock.Release(ctx) }, err
	}
	all["this, shared"] = func() (func() error, error) {
		lock, err := ours.Obtain(ctx, key, time.Minute, &redislock.Options{Shared: []string{key}, Metadata: "reader"})
		return func() error { return lock.Release(ctx) }, err
	}
	pools, endPools := redsyncPools(addrs)
	all["redsync"] = func() (func() error, error) {
		mutex := redsync.New(pools...).NewMutex(key, redsync.WithExpiry(time.Minute))
		err := mutex.TryLock()
		return func() error { return unlockRedsync(ctx, mutex) }, err
	}
	t.Cleanup(func() {
		if err := errors.Join(ours.Close(), closeAll(closers), endPools()); err != nil {
			t.Error(err)
		}
	})
	return all
}

// start starts n servers, or skips the test where there is no redis-server.
func start(t *testing.T, n int) (addrs []string) {
	t.Helper()
	if err := redistest.Available(); err != nil && os.Getenv("REDISLOCK_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	started, err := openServers(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.close(); err != nil {
			t.Error(err)
		}
	})
	return started.addrs()
}

func TestEachLibraryRespectsTheLocksOfTheOthers(t *testing.T) {
	for _, servers := range []int{1, 3} {
		all := libraries(t, start(t, servers))
		for holder, obtain := range all {
			release, err := obtain()
			if err != nil {
				t.Fatalf("%d servers: %s: %v", servers, holder, err)
			}
			for name, other := range all {
				again, err := other()
				switch {
				case holder == "this, shared" && name == holder:
					if err != nil || again() != nil {
						t.Errorf("%d servers: a second one that shares the key got %v", servers, err)
					}
				case err == nil:
					t.Errorf("%d servers: %s gets the key that %s holds", servers, name, holder)
				}
			}
			if err := release(); err != nil {
				t.Errorf("%d servers: %s cannot release: %v", servers, holder, err)
			}
		}
	}
}

// A waiter in line is woken by releases of this library only. Others take a key that is free while somebody waits.
func TestOthersOvertakeTheLine(t *testing.T) {
	addr := start(t, 1)[0]
	all := libraries(t, []string{addr})
	for holder, handsOver := range map[string]bool{"this": true, "bsm": false, "redsync": false} {
		for _, other := range []string{"bsm", "redsync"} {
			release, err := all[holder]()
			if err != nil {
				t.Fatal(err)
			}
			client := newGoRedis(addr)
			locks := redislock.New(client)
			granted := make(chan *redislock.Lock, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			go func() {
				lock, _ := locks.Obtain(ctx, key, time.Minute, &redislock.Options{Queue: true})
				granted <- lock
			}()
			waitUntilInLine(t, locks)
			if err := release(); err != nil {
				t.Fatal(err)
			}
			next, err := all[other]()
			if overtakes := err == nil; overtakes == handsOver {
				t.Errorf("%s after a release of %s: %v", other, holder, err)
			}
			if err == nil {
				if err := next(); err != nil {
					t.Error(err)
				}
			}
			if lock := <-granted; lock == nil {
				t.Errorf("the waiter does not get the key that %s and %s have released", holder, other)
			} else if err := lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
			cancel()
			if err := errors.Join(locks.Close(), client.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// waitUntilInLine waits until somebody waits for key, with a subscription.
func waitUntilInLine(t *testing.T, locks *redislock.Client) {
	t.Helper()
	for range 1000 {
		statuses, err := locks.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if statuses[0].Waiters > 0 {
			time.Sleep(100 * time.Millisecond) // for the subscription, and the try that follows it
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nobody waits")
}
