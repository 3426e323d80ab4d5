package several_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/shard"
	"github.com/redislock/redislock/internal/testing/spec"
)

// The callers of TestQuorumModel on real servers, in real time: servers are stopped, killed and restarted empty, a
// minority at a time; replies and requests are lost, late and doubled; clients stand still. REDISLOCK_TEST_RUNS is how
// many schedules there are for each number of servers.
func TestQuorumModelOnServers(t *testing.T) {
	need.Server(t)
	t.Parallel()
	if shard.Apart(t) { // it runs in real time, and those beside it take all of a processor
		return
	}
	runs := spec.Runs(1)
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			h := newServersHistory(t, n)
			for range runs {
				h.run()
				h.judge()
				for _, problem := range h.problems {
					t.Error(problem)
				}
				if t.Failed() {
					break
				}
			}
			t.Logf("%d locks; faults: %v", h.grants, h.faults)
			if h.grants < fewest*runs {
				t.Error("too few for a test")
			}
		})
	}
}

// fewest is how many locks make a schedule a test.
const fewest = 10

// serversHistory is a schedule on real servers.
type serversHistory struct {
	*placesHistory
	real    []*redistest.Server
	own     []*redis.Client       // of the test, straight to the servers
	proxies [][]*faultproxy.Proxy // by client and server
	faults  map[string]int        // how often each was made
}

func newServersHistory(t *testing.T, n int) *serversHistory {
	h := &serversHistory{faults: map[string]int{}, placesHistory: &placesHistory{
		placesClaims: newPlacesClaims(n/2 + 1), random: rand.New(rand.NewPCG(rand.Uint64(), 14)), ttl: time.Second,
	}}
	for range n {
		server, err := redistest.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		h.real = append(h.real, server)
		own := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1})
		t.Cleanup(func() { _ = own.Close() })
		h.own = append(h.own, own)
	}
	for range 3 {
		var proxies []*faultproxy.Proxy
		var clients []redislock.RedisClient
		for _, server := range h.real {
			proxy, err := faultproxy.New(server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			proxy.Forget()
			t.Cleanup(func() { _ = proxy.Close() })
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 300 * time.Millisecond, DialerRetries: 1})
			t.Cleanup(func() { _ = client.Close() })
			proxies, clients = append(proxies, proxy), append(clients, client)
		}
		locks := redislock.NewQuorum(clients)
		t.Cleanup(func() { _ = locks.Close() })
		h.proxies, h.clients = append(h.proxies, proxies), append(h.clients, locks)
	}
	return h
}

func (h *serversHistory) run() {
	over, stop := context.WithCancel(context.Background())
	defer stop()
	watched := make(chan struct{})
	go func() { h.watch(over, 3*time.Millisecond); close(watched) }()
	const callers = 6
	before := h.countGrants()
	began := time.Now()
	goesOn := func() bool { // on a busy machine, few locks may be obtained while things go wrong
		lasted := time.Since(began)
		return lasted < 9*time.Second || h.countGrants() < before+fewest && lasted < 40*time.Second
	}
	calls := make(chan struct{})
	go func() {
		defer close(calls)
		h.within(time.Minute, "a call does not return", func(i int) {
			for goesOn() {
				h.call(i, false)
			}
		}, callers)
	}()
	for time.Since(began) < 8*time.Second {
		h.fault()
	}
	<-calls
	time.Sleep(2 * h.ttl) // what was on its way is over
	h.within(30*time.Second, "somebody still waits in line", func(i int) { h.call(i, true) }, callers)
	stop()
	<-watched
	left := h.left()
	for patience := time.Now().Add(15 * time.Second); len(left) > 0 && time.Now().Before(patience); left = h.left() {
		time.Sleep(100 * time.Millisecond)
	}
	h.note(history.Event{Kind: history.Final, Held: left})
}

// fault makes one thing go wrong and waits until it is over.
func (h *serversHistory) fault() {
	what := []string{"network", "network", "stopped servers", "stopped client", "emptied servers", "emptied servers"}[h.intN(6)]
	h.faults[what]++
	at := h.intN(len(h.real))
	victims := slices.Concat(h.real[at:], h.real[:at])[:1+h.intN(len(h.real)-h.need)]
	switch what {
	case "network":
		h.breakNetwork(200*time.Millisecond + h.upTo(800*time.Millisecond))
	case "stopped servers":
		for _, server := range victims {
			_ = server.Pause()
		}
		time.Sleep(h.upTo(h.ttl))
		for _, server := range victims {
			_ = server.Resume()
		}
	case "stopped client":
		pause := h.upTo(2 * h.ttl)
		var faults []*faultproxy.Fault
		for _, proxy := range h.proxies[h.intN(len(h.proxies))] {
			faults = append(faults, proxy.Add(faultproxy.Rule{Action: faultproxy.DelayRequest(pause)}))
		}
		time.Sleep(pause)
		for _, f := range faults {
			f.Remove()
		}
	default:
		h.empty(victims)
	}
}

// breakNetwork makes some messages be lost, late or doubled for a while.
func (h *serversHistory) breakNetwork(d time.Duration) {
	var faults []*faultproxy.Fault
	for _, proxies := range h.proxies {
		for _, proxy := range proxies {
			for _, action := range []faultproxy.Action{
				faultproxy.SwallowReply(),
				faultproxy.CutAfterReplyBytes(0),
				faultproxy.CutAfterRequestBytes(h.intN(200)),
				faultproxy.DelayReply(h.upTo(h.ttl)),
				faultproxy.DelayRequest(h.upTo(h.ttl)),
				faultproxy.RepeatRequest(),
			} {
				faults = append(faults, proxy.Add(faultproxy.Rule{
					Match:  func(args []string) bool { return strings.HasPrefix(args[0], "eval") && h.intN(60) == 0 },
					Action: action,
				}))
			}
		}
	}
	time.Sleep(d)
	for _, f := range faults {
		f.Remove()
	}
}

// empty kills servers and restarts them without their data, once no valid lock needs them, and checks that the locks that
// are kept have their keys there again soon.
func (h *serversHistory) empty(victims []*redistest.Server) {
	time.Sleep(h.ttl) // delayed requests are over, and who was granted without them has been topped up, or is gone
	from := time.Now()
	for !h.spared(victims) {
		if time.Since(from) > h.ttl {
			return
		}
		time.Sleep(20 * time.Millisecond)
		from = time.Now()
	}
	for _, server := range victims {
		_ = server.Kill()
	}
	h.shaken(from, 500*time.Millisecond)
	time.Sleep(h.upTo(100 * time.Millisecond))
	for _, server := range victims {
		if err := server.Restart(); err != nil {
			h.problem("%v", err)
		}
	}
	missing := h.keptNow()
	for patience := time.Now().Add(3 * h.ttl); ; time.Sleep(20 * time.Millisecond) {
		missing = slices.DeleteFunc(h.stillKept(missing), func(c *claim) bool {
			return time.Until(c.lock.Until()) <= 0 || h.count(c.lock, time.Time{}, victims) == len(victims)
		})
		if len(missing) == 0 {
			return
		}
		if time.Now().After(patience) {
			h.problem("%q has not got back a server that forgot it %v ago", missing[0].lock.Keys(), 3*h.ttl)
			return
		}
	}
}

// spared reports whether every valid lock is held by a majority without the victims, for as long as the lock is valid: only
// then may they forget.
func (h *serversHistory) spared(victims []*redistest.Server) bool {
	others := slices.DeleteFunc(slices.Clone(h.real), func(s *redistest.Server) bool { return slices.Contains(victims, s) })
	return !slices.ContainsFunc(h.valid(), func(c *claim) bool {
		return h.count(c.lock, c.lock.Until(), others) < h.need && time.Until(c.lock.Until()) > 0
	})
}

// count returns how many of the servers hold all keys of a lock, at least until that time.
func (h *serversHistory) count(lock *redislock.Lock, until time.Time, servers []*redistest.Server) int {
	n := 0
	for i, server := range h.real {
		if !slices.Contains(servers, server) {
			continue
		}
		asked, ctx := time.Now(), context.Background()
		holds := func(key string) bool {
			return h.own[i].Get(ctx, key).Val() == lock.Token() && !asked.Add(h.own[i].PTTL(ctx, key).Val()).Before(until)
		}
		if !slices.ContainsFunc(lock.Keys(), func(key string) bool { return !holds(key) }) {
			n++
		}
	}
	return n
}

// left returns what the servers have but fence counters.
func (h *serversHistory) left() (left []history.Held) {
	ctx := context.Background()
	for i, own := range h.own {
		for _, key := range own.Keys(ctx, "*").Val() {
			if key != "fence" {
				token, _, _ := strings.Cut(own.Get(ctx, key).Val(), " ")
				left = append(left, history.Held{Key: key, Owner: token, TTL: own.PTTL(ctx, key).Val(), Server: i + 1})
			}
		}
	}
	return left
}
