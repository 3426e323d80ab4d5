package several_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/testing/spec"
)

// memoryQuorum returns in-memory servers, and a function that makes Clients on them. They end with the test, which runs
// in a bubble.
func memoryQuorum(t *testing.T, n int) (servers []*spec.MemoryServer, connect func() *redislock.Client) {
	t.Helper()
	for range n {
		server := spec.NewMemoryServer()
		t.Cleanup(server.End)
		servers = append(servers, server)
	}
	owner := 0
	return servers, func() *redislock.Client {
		owner++
		return newQuorum(t, memoryClients(t, servers, owner, nil))
	}
}

// memoryClients returns a client of each server, which ends with the test. change may change its options.
func memoryClients(
	t *testing.T, servers []*spec.MemoryServer, owner int, change func(*redis.Options),
) (clients []redislock.RedisClient) {
	for _, server := range servers {
		client := server.Connect(owner, change)
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	return clients
}

// newQuorum returns a Client that ends with the test.
func newQuorum(t *testing.T, clients []redislock.RedisClient, opts ...redislock.ClientOption) *redislock.Client {
	locks := redislock.NewQuorum(clients, opts...)
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// pair obtains a lock and releases it.
func pair(ctx context.Context, locks *redislock.Client, key string, opt *redislock.Options) error {
	lock, err := locks.Obtain(ctx, key, time.Minute, opt)
	if err != nil {
		return err
	}
	return lock.Release(ctx)
}

// Callers that come at the same time, by the same Client or another, are served in turn, and at no time does
// everybody wait for a sign that nobody gives.
func TestQuorumLineNeverStalls(t *testing.T) {
	t.Parallel()
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				_, connect := memoryQuorum(t, size)
				clients := []*redislock.Client{connect(), connect(), connect()}
				var slowest time.Duration
				for range spec.Schedules(40) {
					start := time.Now()
					var wait sync.WaitGroup
					for i := range 4 {
						wait.Go(func() {
							if err := pair(t.Context(), clients[i%len(clients)], "a", &redislock.Options{Queue: true}); err != nil {
								t.Error(err)
							}
						})
					}
					wait.Wait()
					slowest = max(slowest, time.Since(start))
				}
				if slowest > 50*time.Millisecond {
					t.Errorf("four locks took %v", slowest)
				}
			})
		})
	}
}

// Waiters have one order at all servers, also those that come at the same moment, with different Redis clients.
func TestQuorumWaitersHaveOneOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		servers, connect := memoryQuorum(t, 3)
		all := []*redislock.Client{connect(), connect()}
		if _, err := all[0].Obtain(t.Context(), "a", time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for i := range 10 {
			wait.Go(func() { _, _ = all[i%2].Obtain(ctx, "a", time.Minute, &redislock.Options{Queue: true}) })
		}
		time.Sleep(100 * time.Millisecond)
		line := func(server *spec.MemoryServer) map[string]float64 { // tickets by what an entry says after its id
			tickets := map[string]float64{}
			for member, ticket := range spec.SortedSet(server.Memory.DB(0), "a{a}:redislock:line") {
				if id, rest, _ := strings.Cut(member, " "); id[0] != '~' {
					tickets[rest] = ticket
				}
			}
			return tickets
		}
		first := line(servers[0])
		taken := map[float64]bool{}
		for entry, ticket := range first {
			if taken[ticket] {
				t.Errorf("%q has the ticket %.0f of another waiter", entry, ticket)
			}
			taken[ticket] = true
		}
		if len(first) != 10 {
			t.Errorf("%d waiters, want 10", len(first))
		}
		for _, server := range servers[1:] {
			if other := line(server); !maps.Equal(first, other) {
				t.Errorf("the line %v is %v elsewhere", first, other)
			}
		}
		cancel()
		wait.Wait()
	})
}

// A place that is obtained twice, by a top-up and by a repair, is renewed no longer than the lock is kept.
func TestQuorumRenewsOnlyWhatIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		servers, connect := memoryQuorum(t, 3)
		locks := connect()
		servers[2].SetLatency(spec.Always(100 * time.Millisecond))
		for i := range 40 {
			key := fmt.Sprint("key ", i)
			if err := servers[2].Memory.Set(key, "another's"); err != nil {
				t.Fatal(err)
			}
			lock, err := locks.Obtain(t.Context(), key, time.Second, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, stop := lock.KeepAlive(t.Context())
			time.Sleep(time.Duration(200+5*i) * time.Millisecond)
			servers[2].Memory.Del(key)
			time.Sleep(800 * time.Millisecond)
			stop()
		}
		time.Sleep(2 * time.Second)
		for i, server := range servers {
			if left := server.Memory.Keys(); len(left) > 0 {
				t.Errorf("server %d still has %d keys", i+1, len(left))
			}
		}
	})
}

// Where no message can come, a strategy sets the pace of a waiter.
func TestQuorumWaiterWithoutMessagesTriesAtThePaceOfItsStrategy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		servers, _ := memoryQuorum(t, 3)
		clients := memoryClients(t, servers, 1, nil)
		for i := range clients {
			clients[i] = struct{ redislock.RedisClient }{clients[i]} // a type that the library does not know
		}
		locks := newQuorum(t, clients)
		held, err := locks.Obtain(t.Context(), "a", time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		var released time.Time
		time.AfterFunc(300*time.Millisecond, func() {
			released = time.Now()
			if err := held.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
		lock, err := locks.Obtain(t.Context(), "a", time.Minute,
			&redislock.Options{Queue: true, RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		if late := time.Since(released); late > 20*time.Millisecond {
			t.Errorf("granted %v after the release", late)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
