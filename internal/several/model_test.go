package several_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/internal/testing/race"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Random callers of locks on several places, through a network and on servers that fail at random, hold what the
// guarantees promise. Package check judges their history. The schedules run on fake time, each with one kind of faults,
// by turns. REDISLOCK_TEST_RUNS is how many there are. REDISLOCK_TEST_SEED repeats one, as far as the scheduler of Go does.
func TestQuorumModel(t *testing.T) {
	t.Parallel()
	runs, first := len(faultKinds), rand.Uint64N(uint64(len(faultKinds)))
	if testing.Short() || race.Enabled {
		runs = 3
	}
	runs = spec.Runs(runs)
	kind := -1 // of all schedules; -1 for every kind by turns
	if text := os.Getenv("REDISLOCK_TEST_KIND"); text != "" {
		kind, _ = strconv.Atoi(text)
	}
	grants, busiest, failed, checked := 0, 0, 0, map[string]int{}
	began := time.Now()
	for run := range runs {
		many := uint64(len(faultKinds))
		seed := rand.Uint64N(1<<48)*many + (first+uint64(run))%many
		if kind >= 0 {
			seed += uint64(kind) - seed%many
		}
		if named, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
			seed = named
		}
		passed := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer close(watchProgress())
			bubble.Test(t, func(t *testing.T) {
				h := newPlacesHistory(t, seed)
				h.run()
				for name, n := range h.judge().Checked {
					checked[name] += n
				}
				grants += h.grants
				h.fates.Lock()
				busiest = max(busiest, h.busiest)
				h.fates.Unlock()
				for _, problem := range h.problems {
					t.Errorf("%s, schedule %d: %s", h.kind.name, run+1, problem)
				}
			})
		})
		if !passed {
			failed++
		}
		if failed > 2 {
			break
		}
	}
	t.Logf("%d locks in %d schedules, %v; at most %d chunks in a second; checked %v", grants, runs, time.Since(began), busiest, checked)
	if grants < 5*runs && failed == 0 {
		t.Error("too few for a test")
	}
	for _, name := range []string{check.Exclusion, check.Fence, check.Lease, check.Loss, check.Leftover} {
		if checked[name] == 0 && kind < 0 && failed == 0 {
			t.Errorf("nothing was checked for %s", name)
		}
	}
}

// progress counts the steps of the schedule that runs.
var progress atomic.Int64

// watchProgress ends the process, with the stacks of all goroutines, if a schedule makes no step for a long time: then
// something goes on and on while the clock stands still. Close the channel to end the watch.
func watchProgress() chan struct{} {
	stop := make(chan struct{})
	go func() {
		for last := int64(-1); ; {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Second):
			}
			now := progress.Load()
			if now == last {
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				panic("no progress for 20 s")
			}
			last = now
		}
	}()
	return stop
}

// faultKind is what goes wrong in a schedule.
type faultKind struct {
	name    string
	slots   bool // locks across the slots of a Cluster, in place of a quorum
	messy   bool // messages are late, lost and doubled; servers hang and clients stand still
	fails   bool // servers hang, die and forget; keys are deleted
	late    bool // answers are late, and none is lost: so nothing may stay behind for the ttl, which is long
	far     bool // every client is near some servers and far from others, and that changes
	revives bool // one client refreshes locks that have lapsed, and some of its requests are late or lost
	forgets bool // one client keeps its locks while one server after another forgets them
	fidgets bool // one client uses its locks in random ways, while single servers have troubles with it
}

var faultKinds = []faultKind{
	{name: "a messy network", messy: true},
	{name: "servers that fail", fails: true},
	{name: "late answers", late: true},
	{name: "slots on a messy network", messy: true, slots: true},
	{name: "locks that come back", revives: true},
	{name: "slots and late answers", late: true, slots: true},
	{name: "servers that forget", forgets: true},
	{name: "servers far away", late: true, far: true},
	{name: "a fidget", fidgets: true},
	{name: "a fidget on servers that forget", fidgets: true, forgets: true},
}

// placesHistory is one schedule.
type placesHistory struct {
	*placesClaims
	kind    faultKind
	loses   bool // servers answer on new connections, so calls whose messages are late count as lost
	shares  bool // half of the keys are shared
	servers []*spec.MemoryServer
	clients []*redislock.Client
	ttl     time.Duration

	fates    sync.Mutex // protects the fields below
	random   *rand.Rand
	calm     bool
	skew     []time.Duration                  // of the clients' clocks
	stopped  map[int]time.Time                // by client: it stands still until then
	dead     map[*spec.MemoryServer]time.Time // refreshes of the first client are lost until then
	ways     map[way]time.Duration            // how long a chunk takes, of servers that are far
	slow     *spec.MemoryServer               // obtains of the first client are late there
	troubles map[*spec.MemoryServer]trouble   // with the first client
	second   int64                            // the present one
	chunks   int                              // in it
	busiest  int
}

func newPlacesHistory(t *testing.T, seed uint64) *placesHistory {
	h := &placesHistory{
		kind: faultKinds[seed%uint64(len(faultKinds))], random: rand.New(rand.NewPCG(seed, 14)), ttl: 1500 * time.Millisecond,
		stopped: map[int]time.Time{}, ways: map[way]time.Duration{}, dead: map[*spec.MemoryServer]time.Time{},
		troubles: map[*spec.MemoryServer]trouble{},
	}
	h.loses = seed/uint64(len(faultKinds))%2 > 0
	h.shares = seed/uint64(len(faultKinds))%4 > 1 && !h.kind.forgets // those who share a key mint higher tokens, which a server forgets
	n := 3 + 2*h.random.IntN(2)
	if h.kind.slots || h.kind.revives {
		n = 3
	}
	if h.kind.late {
		h.ttl = 30 * time.Second
	}
	for range n {
		server := spec.NewMemoryServer()
		server.SetLatency(nil)
		server.LeaveQuestions(!h.loses)
		server.Decide(func(m faultproxy.Message) faultproxy.Action { return h.fate(server, m) })
		server.RewriteRequests(func(m faultproxy.Message, raw []byte) { spec.SkewProposal(m, raw, h.skewOf(m.Client-1)) })
		t.Cleanup(server.End)
		h.servers = append(h.servers, server)
	}
	patient := h.kind.late || h.kind.revives || h.kind.fidgets && h.random.IntN(2) == 0
	change := func(opt *redis.Options) {
		opt.ReadTimeout, opt.DialerRetries = 300*time.Millisecond, 1
		if patient {
			opt.ReadTimeout = 3 * time.Second
		}
	}
	for i := range 3 {
		h.skew = append(h.skew, time.Duration(i-1)*900*time.Millisecond)
		locks := h.connect(t, i, change)
		t.Cleanup(func() { _ = locks.Close() })
		h.clients = append(h.clients, locks)
	}
	need := n/2 + 1
	if h.kind.slots {
		need = 1
	}
	h.placesClaims = newPlacesClaims(need)
	if !h.kind.fails && !h.kind.forgets {
		h.held = h.contents
	}
	return h
}

// connect returns a Client on the servers.
func (h *placesHistory) connect(t *testing.T, owner int, change func(*redis.Options)) *redislock.Client {
	if h.kind.slots {
		cluster := spec.NewMemoryCluster(h.servers, owner+1, change)
		t.Cleanup(func() { _ = cluster.Close() })
		return redislock.New(cluster)
	}
	var clients []redislock.RedisClient
	for _, server := range h.servers {
		client := server.Connect(owner+1, change)
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	return redislock.NewQuorum(clients)
}

func (h *placesHistory) intN(n int) int {
	h.fates.Lock()
	defer h.fates.Unlock()
	return h.random.IntN(n)
}

// upTo returns a random duration below d.
func (h *placesHistory) upTo(d time.Duration) time.Duration {
	h.fates.Lock()
	defer h.fates.Unlock()
	return h.anyOf(d)
}

func (h *placesHistory) anyOf(d time.Duration) time.Duration {
	return time.Duration(h.random.Int64N(int64(d)))
}

// skewOf returns how far the clock of a client is ahead.
func (h *placesHistory) skewOf(owner int) time.Duration {
	h.fates.Lock()
	defer h.fates.Unlock()
	return h.skew[owner]
}

// fate is what the network does to a request, or to a reply.
func (h *placesHistory) fate(server *spec.MemoryServer, m faultproxy.Message) faultproxy.Action {
	h.fates.Lock()
	defer h.fates.Unlock()
	h.count()
	now, owner := time.Now(), m.Client-1
	delay, f := h.anyOf(300*time.Microsecond), faultproxy.Action{}
	switch {
	case h.calm:
	case h.kind.messy:
		h.mess(&delay, &f, m)
	case h.kind.far:
		delay += h.distance(owner, server)
	case h.kind.late && h.random.IntN(8) == 0:
		delay = h.anyOf(400 * time.Millisecond)
	case h.kind.revives && owner == 0 && !m.Reply:
		switch {
		case refreshes(m.Args) && now.Before(h.dead[server]):
			f = spec.Lost(m)
		case obtains(m.Args) && server == h.slow:
			delay = h.ttl/4 + h.anyOf(h.ttl/2)
		}
	case h.kind.fidgets && owner == 0:
		h.bother(&delay, &f, h.troubles[server], m)
	}
	if !h.calm {
		delay = max(delay, h.stopped[owner].Sub(now))
	}
	return faultproxy.DelayRequest(delay).And(faultproxy.DelayReply(delay)).And(f) // each message heeds its part
}

var obtains, refreshes = spec.Running("obtain"), spec.Running("refresh")

// way is the network between a client and a server, for two seconds.
type way struct {
	owner  int
	server *spec.MemoryServer
	since  int64 // in units of two seconds
}

// distance returns how long a message takes on its way: up to 100 ms.
func (h *placesHistory) distance(owner int, server *spec.MemoryServer) time.Duration {
	at := way{owner, server, time.Now().Unix() / 2}
	if _, known := h.ways[at]; !known {
		most := []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}[h.random.IntN(3)]
		h.ways[at] = h.anyOf(most)
	}
	return h.ways[at]
}

// count notes a chunk, and whether the callers make ever more of them without getting anywhere. Three Clients that poll every
// 3 ms, and meet in split rounds, have made up to 10,700 a second; readers that woke each other endlessly made 26,000.
func (h *placesHistory) count() {
	progress.Add(1)
	if second := time.Now().Unix(); second != h.second {
		h.second, h.chunks = second, 0
	}
	if h.chunks++; h.chunks == 20_000 {
		h.problem("20,000 chunks in one second")
	}
	h.busiest = max(h.busiest, h.chunks)
}

// mess is the fate of a message on a messy network.
func (h *placesHistory) mess(delay *time.Duration, f *faultproxy.Action, m faultproxy.Message) {
	switch what := h.random.IntN(1000); {
	case what < 12:
		*delay = h.anyOf(2 * h.ttl)
	case what < 40:
		*delay = h.anyOf(50 * time.Millisecond)
	case what < 50 && m.Reply:
		*f = spec.Lost(m)
	case what < 50:
		*f, *delay = faultproxy.CutClient(), h.anyOf(2*h.ttl)
	case what < 56:
		*f = spec.Lost(m)
	case what < 60:
		*f = faultproxy.SwallowReply()
	case what < 80 && !m.Reply:
		again := 1 + h.anyOf(10*time.Millisecond)
		if what < 64 {
			again = 1 + h.anyOf(h.ttl)
		}
		if refreshes(m.Args) { // an old one, sent again by nobody, would shorten the ttl behind the holder's back
			again = 1
		}
		*f = faultproxy.RepeatRequestAfter(again)
	}
}

func (h *placesHistory) run() {
	began := time.Now()
	over, stop := context.WithCancel(context.Background())
	var watcher, faults sync.WaitGroup
	watcher.Go(func() { h.watch(over, 5*time.Millisecond) })
	faulty, end := context.WithCancel(over)
	switch {
	case h.kind.fails:
		faults.Go(func() { h.fail(faulty) })
	case h.kind.messy:
		faults.Go(func() { h.stall(faulty) })
	}
	const callers = 6
	h.within(time.Minute, "a call does not return", func(i int) {
		for time.Since(began) < 6*time.Second {
			switch {
			case h.kind.revives && i == 0:
				h.revive()
			case h.kind.fidgets && i == 0:
				h.fidget()
			case h.kind.forgets && i == 0:
				h.outlive()
			default:
				h.call(i, false)
			}
		}
	}, callers)
	end()
	faults.Wait()
	h.fates.Lock()
	h.calm = true
	h.fates.Unlock()
	if h.kind.late {
		time.Sleep(lineLasts)
		h.note(history.Event{Kind: history.Final, Held: h.contents()})
	}
	time.Sleep(6 * time.Second) // what was on its way is over
	h.within(30*time.Second, "somebody still waits in line", func(i int) { h.call(i, true) }, callers)
	time.Sleep(lineLasts)
	h.note(history.Event{Kind: history.Final, Held: h.contents()})
	stop()
	watcher.Wait()
}

// within calls do side by side, so many times, and reports a problem if they do not return within the limit.
func (h *placesHistory) within(limit time.Duration, problem string, do func(i int), times int) {
	var wait sync.WaitGroup
	for i := range times {
		wait.Go(func() { do(i) })
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
		h.problem("%s", problem)
		<-done
	}
}

// call obtains a lock, uses it and gives it up in some way.
func (h *placesHistory) call(caller int, final bool) {
	keys := []string{"a", "b", "c"}
	first, client := h.intN(3), caller%3
	if (h.kind.revives || h.kind.fidgets) && !final {
		first, client = 0, 1+caller%2
	}
	keys = slices.Concat(keys[first:], keys[:first])[:1+h.intN(2)]
	if h.kind.forgets {
		keys = []string{"a"} // another lock would not outlive what the servers forget, nor would its fencing token
	}
	opt := &redislock.Options{FenceKey: "fence", Queue: final || h.intN(2) == 0, AcrossSlots: h.kind.slots}
	if !opt.Queue && h.intN(2) == 0 {
		opt.RetryStrategy = redislock.LinearBackoff(50 * time.Millisecond)
	}
	h.share(opt, keys)
	ctx, cancel := context.WithCancel(context.Background())
	if !final {
		ctx, cancel = context.WithTimeout(ctx, time.Millisecond+h.upTo(3*time.Second))
	}
	defer cancel()
	began := time.Now()
	lock, err := h.clients[client].ObtainMulti(ctx, keys, h.ttl, opt)
	if err != nil {
		if final {
			h.note(history.Event{Kind: history.Last, Name: "ObtainMulti", Keys: keys, Outcome: err.Error()})
		}
		time.Sleep(h.upTo(50 * time.Millisecond))
		return
	}
	c := h.granted(began, lock, opt)
	background := context.Background()
	stop := context.CancelFunc(func() {})
	if h.intN(3) > 0 {
		h.keep(c, true)
		_, stop = lock.KeepAlive(background)
	}
	hold := []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second}[h.intN(3)]
	if h.kind.late || h.kind.revives || h.kind.forgets || h.kind.fidgets {
		hold = 50 * time.Millisecond
	}
	time.Sleep(h.upTo(hold))
	if h.intN(4) == 0 {
		refresh, cancel := context.WithTimeout(background, time.Second)
		_ = lock.Refresh(refresh, h.ttl*time.Duration(1+h.intN(3))/2, h.metadata())
		cancel()
		time.Sleep(h.upTo(100 * time.Millisecond))
	}
	h.keep(c, false)
	stop()
	if final || h.kind.late || h.kind.forgets || h.kind.fidgets || h.intN(8) > 0 {
		limited, cancel := context.WithTimeout(background, 50*time.Millisecond+h.upTo(time.Second))
		h.release(limited, lock)
		cancel()
	}
}

// share lets others hold some of the keys as well. Across slots, some of them can have two holders.
func (h *placesHistory) share(opt *redislock.Options, keys []string) {
	for _, key := range keys {
		switch {
		case !h.shares || h.intN(2) == 0:
		case h.kind.slots && key == "b":
			opt.Permits = map[string]int{key: 2}
		default:
			opt.Shared = append(opt.Shared, key)
		}
	}
}

// metadata returns the options of a Refresh: new metadata, or none.
func (h *placesHistory) metadata() *redislock.Options {
	if n := h.intN(4); n > 1 {
		return &redislock.Options{Metadata: strconv.Itoa(n)}
	}
	return nil
}

// release releases a lock, and checks that it is on too few servers in memory if that succeeds.
func (h *placesHistory) release(ctx context.Context, lock *redislock.Lock) {
	if lock.Release(ctx) != nil || len(h.servers) == 0 {
		return
	}
	left := func() (n int) {
		for _, server := range h.servers {
			if slices.ContainsFunc(lock.Keys(), func(key string) bool { return server.HasKey(key, lock.Token(), 0) }) {
				n++
			}
		}
		return n
	}
	n, most := left(), len(h.servers)-h.need
	if n > most { // an obtain or a mend that was under way may have been executed after the release
		time.Sleep(4 * time.Second)
		n = left()
	}
	if n > most {
		h.problem("%q is released, and still on %d servers", lock.Keys(), n)
	}
}

// claim obtains "a", with a fencing token. It returns nil if that takes too long.
func (h *placesHistory) claim(client *redislock.Client, opt *redislock.Options) *claim {
	limited, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	opt.FenceKey = "fence"
	h.share(opt, []string{"a"})
	began := time.Now()
	lock, err := client.Obtain(limited, "a", h.ttl, opt)
	if err != nil {
		time.Sleep(h.upTo(50 * time.Millisecond)) // servers that hang are not asked, and then no time passes
		return nil
	}
	return h.granted(began, lock, opt)
}

// revive obtains a lock, lets it lapse and refreshes it again and again. One server gets the obtain late, perhaps after
// somebody else has held the lock in between. Another misses the first refresh, which is for a shorter ttl, so it still has
// the lock when the third one has not.
func (h *placesHistory) revive() {
	at, turn := h.intN(3), 1+h.intN(2)
	late, dead := h.servers[at], h.servers[(at+turn)%3]
	h.fates.Lock()
	h.slow = late
	h.fates.Unlock()
	c := h.claim(h.clients[0], &redislock.Options{Queue: true})
	if c == nil {
		return
	}
	lock, background := c.lock, context.Background()
	h.fates.Lock()
	h.dead[dead] = time.Now().Add(h.ttl / 4)
	h.fates.Unlock()
	ttl := h.ttl / 4
	for time.Since(lock.Until()) < h.ttl {
		limited, cancel := context.WithTimeout(background, 200*time.Millisecond)
		_ = lock.Refresh(limited, ttl, h.metadata())
		cancel()
		time.Sleep(max(0, time.Until(lock.Until())) + h.upTo(100*time.Millisecond))
		if ttl = h.ttl / 2; h.intN(8) == 0 {
			break
		}
	}
	limited, cancel := context.WithTimeout(background, 200*time.Millisecond)
	defer cancel()
	h.release(limited, lock)
}

// outlive obtains a lock with the client whose clock is ahead. While the lock is held, all servers but one forget what they
// have, one after another, each when the lock has its keys there again. So the next fencing token rests on the counters that
// came back with them.
func (h *placesHistory) outlive() {
	c := h.claim(h.clients[2], &redislock.Options{Queue: true})
	if c == nil {
		return
	}
	lock, background := c.lock, context.Background()
	h.keep(c, true)
	_, stop := lock.KeepAlive(background)
	for _, server := range h.fromAny()[1:] {
		if time.Until(lock.Until()) <= 0 {
			h.problem("a kept lock has lapsed, although a majority has never forgotten it")
			break
		}
		if !h.spared([]*spec.MemoryServer{server}) {
			break
		}
		server.Kill()
		h.shaken(time.Now(), 20*time.Millisecond)
		server.Revive()
		for tries := 0; tries < 50 && !server.Has(lock, 0); tries++ {
			_ = lock.Refresh(background, h.ttl, nil)
			time.Sleep(h.upTo(10 * time.Millisecond))
		}
		time.Sleep(10 * time.Millisecond) // its counter is raised after that
	}
	h.keep(c, false)
	stop()
	h.release(background, lock)
	time.Sleep(h.upTo(200 * time.Millisecond))
}

// stall makes as many servers hang as may be missing, or one client stand still.
func (h *placesHistory) stall(over context.Context) {
	for over.Err() == nil {
		time.Sleep(h.upTo(time.Second))
		if h.intN(2) == 0 {
			client, until := h.intN(len(h.clients)), time.Now().Add(h.upTo(2*h.ttl))
			h.fates.Lock()
			h.stopped[client] = until
			h.fates.Unlock()
			continue
		}
		victims := h.someServers()
		for _, server := range victims {
			server.Hang()
		}
		time.Sleep(h.upTo(h.ttl))
		for _, server := range victims {
			server.Resume()
		}
	}
}

// fromAny returns all servers, from a random one on.
func (h *placesHistory) fromAny() []*spec.MemoryServer {
	at := h.intN(len(h.servers))
	return slices.Concat(h.servers[at:], h.servers[:at])
}

// someServers returns servers that may fail at the same time.
func (h *placesHistory) someServers() []*spec.MemoryServer {
	all := h.fromAny()
	if h.kind.slots {
		return all[:1]
	}
	return all[:1+h.intN(len(h.servers)-h.need)]
}

// fail makes some servers fail: they hang, or forget when no lock needs them. Now and then it deletes a lock everywhere.
func (h *placesHistory) fail(over context.Context) {
	for over.Err() == nil {
		time.Sleep(h.upTo(400 * time.Millisecond))
		victims := h.someServers()
		switch h.intN(4) {
		case 0:
			for _, server := range victims {
				server.Hang()
			}
			time.Sleep(h.upTo(time.Second))
			for _, server := range victims {
				server.Resume()
			}
			time.Sleep(2 * h.ttl) // who was granted without it has been topped up, or is gone
		case 1:
			h.force()
		default:
			h.forget(victims)
		}
	}
}

// forget makes servers forget all they have, and checks that the locks that are kept have their keys there again soon.
func (h *placesHistory) forget(victims []*spec.MemoryServer) {
	if !h.spared(victims) {
		return
	}
	for _, server := range victims {
		server.Kill()
	}
	h.shaken(time.Now(), 20*time.Millisecond)
	time.Sleep(h.upTo(100 * time.Millisecond))
	for _, server := range victims {
		server.Revive()
	}
	before := h.keptNow()
	time.Sleep(h.ttl)
	for _, c := range h.stillKept(before) {
		for _, server := range victims {
			if time.Until(c.lock.Until()) > 0 && !server.Has(c.lock, 0) {
				h.problem("%q has not got back a server that forgot it %v ago", c.lock.Keys(), h.ttl)
			}
		}
	}
	time.Sleep(h.ttl / 2)
}

// force deletes the keys of a lock that is kept, at a majority of the servers or at all, as an operator would, and checks
// that the lock is lost. It does so twice: where a renewal arrives just after the first time, the server looks like the
// only one that has lost the keys, and gets them again.
func (h *placesHistory) force() {
	before := h.keptNow()
	if len(before) == 0 {
		return
	}
	c := before[h.intN(len(before))]
	h.deleted(c)
	victims, since := h.fromAny()[:h.need+h.intN(len(h.servers)-h.need+1)], time.Now()
	for range 2 {
		for _, server := range victims {
			for _, key := range c.lock.Keys() {
				if server.HasKey(key, c.lock.Token(), 0) {
					server.Memory.Del(key)
				}
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	h.shaken(since, 20*time.Millisecond) // somebody who was just being granted the keys has lost them as well
	time.Sleep(h.ttl)
	for _, c := range h.stillKept([]*claim{c}) {
		n := h.holders(c.lock, 0, nil)
		if n >= h.need || time.Until(c.lock.Until()) > 0 {
			h.problem("%q is back at %d servers after it was deleted at a majority", c.lock.Keys(), n)
		}
	}
	time.Sleep(h.ttl) // what is left of it at the other servers is gone
}

// spared waits until every valid lock is held by a majority without the victims, for as long as the lock is valid, and
// reports whether there was such a moment: only then may they forget. It is not enough that a majority has the keys, because
// fewer may have confirmed the last Refresh or renewal. A kept lock that stays on a bare majority is a problem; that there is
// always another one, just granted, is none.
func (h *placesHistory) spared(victims []*spec.MemoryServer) bool {
	bare := map[*claim]int{} // for how many looks in a row
	for range 100 {
		before, spared := bare, true
		bare = map[*claim]int{}
		for _, c := range h.valid() {
			left := time.Until(c.lock.Until())
			if left <= 0 || h.holders(c.lock, left, victims) >= h.need {
				continue
			}
			spared = false
			if bare[c] = before[c] + 1; !h.shouldSpread(c, victims) {
				bare[c] = 0
			}
			if bare[c] == 30 { // a renewal comes after a third of the ttl
				h.problem("for 600 ms %q had a bare majority", c.lock.Keys())
				return false
			}
		}
		if spared {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// shouldSpread reports whether a lock is on too few servers to spare the victims, and is to be acquired at another one after
// its next renewal: it is kept, and nobody else has its keys where they are missing. A lock that is not kept may stay on a
// bare majority. A server that has refused it for long is asked again only after a Refresh.
func (h *placesHistory) shouldSpread(c *claim, victims []*spec.MemoryServer) bool {
	if len(h.stillKept([]*claim{c})) == 0 || h.holders(c.lock, 0, victims) >= h.need || time.Until(c.lock.Until()) <= 0 {
		return false
	}
	return !slices.ContainsFunc(h.servers, func(server *spec.MemoryServer) bool {
		return slices.ContainsFunc(c.lock.Keys(), func(key string) bool {
			return server.Memory.Exists(key) && !server.HasKey(key, c.lock.Token(), 0)
		})
	})
}

// holders returns how many servers, apart from some, hold a lock for that long.
func (h *placesHistory) holders(lock *redislock.Lock, left time.Duration, except []*spec.MemoryServer) (n int) {
	for _, server := range h.servers {
		if !slices.Contains(except, server) && server.Has(lock, left) {
			n++
		}
	}
	return n
}

// lineLasts is for how long a line may remain to which a late try has added a waiter that has left.
const lineLasts = 8 * time.Second

// contents returns what the servers hold but fence counters.
func (h *placesHistory) contents() (all []history.Held) {
	for i, server := range h.servers {
		for _, key := range server.Memory.Keys() {
			if key == "fence" {
				continue
			}
			for token, left := range server.Holders(key) {
				all = append(all, history.Held{Key: key, Owner: token, TTL: left, Server: i + 1})
			}
		}
	}
	return all
}
