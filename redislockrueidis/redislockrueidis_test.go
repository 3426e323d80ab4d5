package redislockrueidis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/through"
	"github.com/redislock/redislock/redislocktest"
)

func TestConn(t *testing.T) {
	redislocktest.TestConn(t, startServer(t).Addr(), dial)
}

func TestConnOfACluster(t *testing.T) {
	redislocktest.TestConn(t, startCluster(t).Addrs()[0], dial)
}

func dial(t *testing.T, address string) adapter.Conn { return connOf(connect(t, address)) }

func connect(t *testing.T, address string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func startServer(t *testing.T) *redistest.Server {
	t.Helper()
	need.Server(t)
	server, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func startCluster(t *testing.T) *redistest.Cluster {
	t.Helper()
	need.Server(t)
	cluster, err := redistest.StartCluster(3, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	return cluster
}

// All that a lock can do, on one server and on a Cluster.
func TestLocks(t *testing.T) {
	for name, address := range map[string]func(t *testing.T) string{
		"one server": func(t *testing.T) string { return startServer(t).Addr() },
		"a Cluster":  func(t *testing.T) string { return startCluster(t).Addrs()[0] },
	} {
		t.Run(name, func(t *testing.T) { useLocks(t, Adapt(connect(t, address(t)))) })
	}
}

func useLocks(t *testing.T, client redislock.RedisClient) {
	ctx := t.Context()
	locks := redislock.New(client)
	defer locks.Close()
	opt := func() *redislock.Options {
		return &redislock.Options{FenceKey: "fence", AcrossSlots: true, Queue: true}
	}
	lock, err := locks.ObtainMulti(ctx, []string{"a", "b", "c"}, time.Second, opt())
	if err != nil {
		t.Fatal(err)
	}
	kept, stop := lock.KeepAlive(ctx)
	defer stop()
	var inside, calls atomic.Int64
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			other := redislock.New(client) // as many programs have one for each request
			err := other.Do(ctx, []string{"a", "b", "c"}, 5*time.Second, opt(), func(context.Context) error {
				defer inside.Add(-1)
				if calls.Add(1); inside.Add(1) > 1 {
					t.Error("two hold the keys at once")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(1500 * time.Millisecond)
	if kept.Err() != nil {
		t.Errorf("the lock was lost: %v", context.Cause(kept))
	}
	stop()
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
	released := time.Now()
	wait.Wait()
	if took := time.Since(released); took > 10*time.Second {
		t.Errorf("50 waiters were served after %v: no message wakes them", took)
	}
	if calls.Load() != 50 {
		t.Errorf("%d calls", calls.Load())
	}
}

// Programs with different clients share locks, and wait in one line.
func TestBesideGoRedis(t *testing.T) {
	address := startServer(t).Addr()
	other := redis.NewClient(&redis.Options{Addr: address})
	defer other.Close()
	ours, theirs := redislock.New(Adapt(connect(t, address))), redislock.New(other)
	defer ours.Close()
	defer theirs.Close()
	var inside, calls atomic.Int64
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			locks := []*redislock.Client{ours, theirs}[i%2]
			err := locks.Do(t.Context(), []string{"a"}, 5*time.Second, &redislock.Options{Queue: true}, func(context.Context) error {
				defer inside.Add(-1)
				if calls.Add(1); inside.Add(1) > 1 {
					t.Error("two hold the key at once")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if calls.Load() != 40 {
		t.Errorf("%d calls", calls.Load())
	}
}

func TestQuorumOfBoth(t *testing.T) {
	var clients []redislock.RedisClient
	for i := range 3 {
		address := startServer(t).Addr()
		if i == 1 {
			other := redis.NewClient(&redis.Options{Addr: address})
			t.Cleanup(func() { _ = other.Close() })
			clients = append(clients, other)
			continue
		}
		clients = append(clients, Adapt(connect(t, address)))
	}
	locks := redislock.NewQuorum(clients)
	defer locks.Close()
	lock, err := locks.Obtain(t.Context(), "a", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Obtain(t.Context(), "a", time.Minute, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Error(err)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestClientsThatCannotBeUsed(t *testing.T) {
	client := connect(t, startServer(t).Addr())
	client.Close()
	for name, made := range map[string]redislock.RedisClient{"nil": Adapt(nil), "closed": Adapt(client)} {
		began := time.Now()
		_, err := redislock.New(made).Obtain(t.Context(), "a", time.Minute, &redislock.Options{Queue: true})
		if err == nil || errors.Is(err, redislock.ErrNotObtained) || time.Since(began) > time.Second {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysOfSeveralSlots(t *testing.T) {
	locks := redislock.New(Adapt(connect(t, startCluster(t).Addrs()[0])))
	_, err := locks.ObtainMulti(t.Context(), []string{"a", "b"}, time.Minute, nil)
	if err == nil || !strings.Contains(err.Error(), "AcrossSlots") {
		t.Error(err)
	}
}

// The client replaces the connections to a master that was deposed. It says then that it is closing, and is not.
func TestFailover(t *testing.T) {
	need.Server(t)
	sentinel, err := redistest.StartSentinel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sentinel.Close() })
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: sentinel.Addrs(), DisableCache: true, Sentinel: rueidis.SentinelOption{MasterSet: sentinel.MasterName()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	locks := redislock.New(Adapt(client))
	var held []*redislock.Lock
	for i := range 4 {
		lock, err := locks.Obtain(t.Context(), fmt.Sprint("key ", i), time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lock)
	}
	time.Sleep(500 * time.Millisecond) // the replica has them
	if err := sentinel.Master().Pause(); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for _, lock := range held {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := lock.Release(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for i := range 4 {
		if _, err := locks.Obtain(t.Context(), fmt.Sprint("key ", i), time.Minute, nil); err != nil {
			t.Errorf("key %d is left behind: %v", i, err)
		}
	}
}

// The library subscribes again when Listen has ended.
func TestListenEndsIfItIsNotConfirmed(t *testing.T) {
	t.Parallel()
	proxy, err := faultproxy.New(startServer(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	listener := dial(t, proxy.Addr()).(adapter.Listener)
	proxy.Add(faultproxy.Rule{Match: faultproxy.Command("subscribe"), Action: faultproxy.BlackHole()})
	ctx, cancel := context.WithTimeout(t.Context(), 2*subscribeWait)
	defer cancel()
	unexpected := func() { t.Error("it was confirmed") }
	if err := listener.Listen(ctx, "channel", unexpected, func(string) {}); err == nil || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// All that the library promises on one server holds through this adapter.
func TestSpecs(t *testing.T) { through.Specs(t, "rueidis") }
