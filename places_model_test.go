package redislock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// Random callers of a quorum, through a network and servers that fail at random, hold what the guarantees promise: no two
// locks that share a key are valid at the same time, fencing tokens rise, waiters are served in the end, and nothing
// stays behind. REDISLOCK_TEST_SEED repeats the schedule of a failure, as far as the scheduler of Go does.
func TestQuorumModel(t *testing.T) {
	runs := 10
	if testing.Short() {
		runs = 3
	}
	if text := os.Getenv("REDISLOCK_TEST_RUNS"); text != "" {
		runs, _ = strconv.Atoi(text)
	}
	grants := 0
	for range runs {
		seed := rand.Uint64()
		if named, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
			seed = named
		}
		synctest.Test(t, func(t *testing.T) {
			h := newQuorumHistory(t, seed)
			h.run()
			grants += h.grants
			for _, problem := range h.problems {
				t.Errorf("seed %d: %s", seed, problem)
			}
		})
	}
	if t.Logf("%d locks in %d schedules", grants, runs); grants < 10*runs {
		t.Error("too few for a test")
	}
}

// quorumHistory is one schedule.
type quorumHistory struct {
	t       *testing.T
	servers []*memoryServer
	clients []*redislock.Client
	need    int
	ttl     time.Duration
	messy   bool // messages are late and lost everywhere, and no server forgets
	custom  bool // callers have tokens of their own
	began   time.Time

	mu       sync.Mutex // protects the fields below
	random   *rand.Rand
	calm     bool // no more faults
	claims   []*claim
	last     map[string]int64 // by key: the largest fencing token
	problems []string
	grants   int
}

// claim is a lock that somebody believes to have.
type claim struct {
	lock *redislock.Lock
	kept bool
}

func newQuorumHistory(t *testing.T, seed uint64) *quorumHistory {
	h := &quorumHistory{t: t, random: rand.New(rand.NewPCG(seed, 14)), last: map[string]int64{}, began: time.Now()}
	n := 3 + 2*h.random.IntN(2)
	h.need, h.ttl = n/2+1, 1500*time.Millisecond
	h.messy = h.random.IntN(2) == 0
	h.custom = !h.messy && h.random.IntN(3) == 0 // a late release of the same token would hit a later grant
	servers, _ := memoryQuorum(t, n)
	h.servers = servers
	for i := range 3 {
		var clients []redislock.RedisClient
		for _, server := range servers {
			client := server.connect(i, func(opt *redis.Options) {
				opt.ReadTimeout, opt.DialerRetries = 300*time.Millisecond, 1
			})
			t.Cleanup(func() { _ = client.Close() })
			clients = append(clients, client)
		}
		locks := redislock.NewQuorum(clients)
		t.Cleanup(func() { _ = locks.Close() })
		h.clients = append(h.clients, locks)
	}
	for _, server := range servers {
		server.fate = h.fate
	}
	return h
}

// fate is what the network does to a chunk.
func (h *quorumHistory) fate(*wire, bool, []byte) fate {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := fate{delay: time.Duration(h.random.Int64N(int64(300 * time.Microsecond)))}
	if !h.messy || h.calm {
		return f
	}
	switch what := h.random.IntN(1000); {
	case what < 12:
		f.delay = time.Duration(h.random.Int64N(int64(2 * h.ttl)))
	case what < 40:
		f.delay = time.Duration(h.random.Int64N(int64(50 * time.Millisecond)))
	case what < 50:
		f.cut, f.delay = true, time.Duration(h.random.Int64N(int64(2*h.ttl)))
	case what < 56:
		f.lost = true
	case what < 60:
		f.silent = true
	}
	return f
}

func (h *quorumHistory) intN(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

func (h *quorumHistory) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.problems) < 3 {
		h.problems = append(h.problems, fmt.Sprint(time.Since(h.began), ": ", fmt.Sprintf(format, args...)))
	}
}

func (h *quorumHistory) run() {
	over, stop := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	watchers.Go(func() { h.watch(over) })
	if !h.messy {
		watchers.Go(func() { h.fail(over) })
	}
	var callers sync.WaitGroup
	for i := range 6 {
		callers.Go(func() {
			for time.Since(h.began) < 12*time.Second {
				h.call(i, false)
			}
		})
	}
	callers.Wait()
	stop()
	watchers.Wait()
	h.mu.Lock()
	h.calm = true
	h.mu.Unlock()
	time.Sleep(4 * h.ttl) // what was on its way is over
	for i := range 6 {
		callers.Go(func() { h.call(i, true) })
	}
	done := make(chan struct{})
	go func() { callers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		h.problem("somebody still waits in line")
	}
	time.Sleep(h.ttl + 5*time.Second)
	for i, server := range h.servers {
		left := slices.DeleteFunc(server.memory.Keys(), func(key string) bool { return key == "fence" })
		if len(left) > 0 {
			value, _ := server.memory.Get(left[0])
			h.problem("server %d still has %v, %q for %v", i, left, value, server.memory.TTL(left[0]))
		}
	}
}

// call obtains a lock, uses it and gives it up in some way.
func (h *quorumHistory) call(caller int, final bool) {
	keys := []string{"a", "b", "c"}
	first := h.intN(3)
	keys = append(keys[first:first+1:first+1], keys[(first+1)%3])[:1+h.intN(2)]
	opt := &redislock.Options{FenceKey: "fence", Queue: final || h.intN(2) == 0}
	if !opt.Queue && h.intN(2) == 0 {
		opt.RetryStrategy = redislock.LinearBackoff(20 * time.Millisecond)
	}
	if h.custom {
		opt.Token = fmt.Sprint("caller-", caller)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if !final {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+h.intN(3000))*time.Millisecond)
	}
	defer cancel()
	lock, err := h.clients[caller%3].ObtainMulti(ctx, keys, h.ttl, opt)
	if err != nil {
		if final {
			h.problem("an obtain in calm: %v", err)
		}
		time.Sleep(time.Duration(h.intN(20)) * time.Millisecond)
		return
	}
	c := &claim{lock: lock}
	h.granted(c)
	background := context.Background()
	stop := context.CancelFunc(func() {})
	if h.intN(3) > 0 {
		h.mu.Lock()
		c.kept = true
		h.mu.Unlock()
		_, stop = lock.KeepAlive(background)
	}
	time.Sleep(time.Duration(h.intN([]int{10, 200, 3000}[h.intN(3)])) * time.Millisecond)
	if h.intN(4) == 0 {
		refresh, cancel := context.WithTimeout(background, time.Second)
		_ = lock.Refresh(refresh, h.ttl*time.Duration(1+h.intN(3))/2, nil)
		cancel()
		time.Sleep(time.Duration(h.intN(100)) * time.Millisecond)
	}
	h.mu.Lock()
	c.kept = false
	h.mu.Unlock()
	stop()
	if final || h.custom || h.intN(8) > 0 {
		limited, cancel := context.WithTimeout(background, time.Duration(50+h.intN(1000))*time.Millisecond)
		_ = lock.Release(limited)
		cancel()
	}
}

// granted notes a lock and checks its fencing token against those before it.
func (h *quorumHistory) granted(c *claim) {
	h.mu.Lock()
	h.grants++
	var late []string
	for _, key := range c.lock.Keys() {
		if c.lock.FenceToken() <= h.last[key] {
			late = append(late, fmt.Sprintf("%q has fencing token %d after %d", key, c.lock.FenceToken(), h.last[key]))
		}
		h.last[key] = max(h.last[key], c.lock.FenceToken())
	}
	h.claims = append(h.claims, c)
	h.mu.Unlock()
	for _, problem := range late {
		h.problem("%s", problem)
	}
	h.check()
}

// valid returns the claims that are valid now.
func (h *quorumHistory) valid() []*claim {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	var valid []*claim
	h.claims = slices.DeleteFunc(h.claims, func(c *claim) bool {
		until := c.lock.Until()
		if until.After(now) {
			valid = append(valid, c)
		}
		return now.Sub(until) > 10*h.ttl && !c.kept
	})
	return valid
}

// check finds two valid locks that share a key.
func (h *quorumHistory) check() {
	holder := map[string]*redislock.Lock{}
	for _, c := range h.valid() {
		for _, key := range c.lock.Keys() {
			if other := holder[key]; other != nil && other.Token() != c.lock.Token() {
				h.problem("%q has two holders, for %v and %v more", key, time.Until(other.Until()), time.Until(c.lock.Until()))
			}
			holder[key] = c.lock
		}
	}
}

func (h *quorumHistory) watch(over context.Context) {
	for over.Err() == nil {
		h.check()
		time.Sleep(3 * time.Millisecond)
	}
}

// has reports whether a server holds all keys of a lock.
func (s *memoryServer) has(lock *redislock.Lock) bool {
	return !slices.ContainsFunc(lock.Keys(), func(key string) bool {
		value, _ := s.memory.Get(key)
		token, _, _ := strings.Cut(value, " ")
		return token != lock.Token()
	})
}

// fail makes one server at a time fail: it hangs, or forgets when no lock needs it.
func (h *quorumHistory) fail(over context.Context) {
	for over.Err() == nil {
		time.Sleep(time.Duration(h.intN(600)) * time.Millisecond)
		victim := h.intN(len(h.servers))
		server := h.servers[victim]
		if h.intN(3) == 0 {
			server.hang()
			time.Sleep(time.Duration(h.intN(1000)) * time.Millisecond)
			server.resume()
			time.Sleep(2 * h.ttl) // who was granted without it has been topped up, or is gone
			continue
		}
		if !h.spared(server) {
			continue
		}
		server.kill()
		time.Sleep(time.Duration(h.intN(100)) * time.Millisecond)
		server.revive()
		before := h.valid()
		h.mu.Lock()
		before = slices.DeleteFunc(before, func(c *claim) bool { return !c.kept })
		h.mu.Unlock()
		time.Sleep(h.ttl)
		h.mu.Lock()
		before = slices.DeleteFunc(before, func(c *claim) bool { return !c.kept })
		h.mu.Unlock()
		for _, c := range before {
			if time.Until(c.lock.Until()) > 0 && !server.has(c.lock) {
				h.problem("%q has not got server %d back that forgot it %v ago", c.lock.Keys(), victim, h.ttl)
			}
		}
		time.Sleep(2 * h.ttl)
	}
}

// spared waits until every valid lock is held by a majority without the server, and reports whether that came soon.
func (h *quorumHistory) spared(server *memoryServer) bool {
	for range 20 {
		needed := slices.ContainsFunc(h.valid(), func(c *claim) bool {
			n := 0
			for _, other := range h.servers {
				if other != server && other.has(c.lock) {
					n++
				}
			}
			return n < h.need && time.Until(c.lock.Until()) > 0
		})
		if !needed {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	h.problem("for 400 ms some lock had a bare majority")
	return false
}
