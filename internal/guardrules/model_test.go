package guardrules_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Random callers with a guard hold what the guarantees promise, although servers forget at any time. Package check judges
// their history, and nothing is excepted. The schedules run on fake time, each of one kind, by turns. REDISLOCK_TEST_RUNS
// is how many there are. REDISLOCK_TEST_KIND, an index into kinds, and REDISLOCK_TEST_SEED repeat one schedule, as far as the
// scheduler of Go does.
func TestModel(t *testing.T) {
	t.Parallel()
	runs := spec.Runs(spec.Schedules(len(kinds)))
	kind, err := strconv.Atoi(os.Getenv("REDISLOCK_TEST_KIND"))
	if err != nil {
		kind = -1 // every kind by turns
	}
	seen, failed, began := map[string]counts{}, 0, time.Now()
	for run := range runs {
		k := kinds[run%len(kinds)]
		if kind >= 0 {
			k = kinds[kind]
		}
		if seen[k.name] == nil {
			seen[k.name] = counts{}
		}
		seed := seedOf(rand.Uint64())
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			problems, what := play(t, k, seed)
			seen[k.name].add(what)
			for _, problem := range problems {
				t.Errorf("%s, schedule %d: %s", k.name, run+1, problem)
			}
			if len(problems) > 0 {
				failed++
			}
		})
		if failed > 2 {
			break
		}
	}
	total := counts{}
	for name, what := range seen {
		t.Logf("%s: %v", name, what)
		total.add(what)
	}
	t.Logf("%d schedules, %v: %v", runs, time.Since(began), total)
	if failed > 0 || kind >= 0 || runs < len(kinds) {
		return
	}
	for _, name := range []string{
		grants, queued, attached, losses, closures, refusals, putBack, survivors,
		check.Exclusion, check.Limits, check.Fence, check.Leftover,
	} {
		rare := name == attached // 1.4 times in each schedule of the one kind that has it
		if total[name] == 0 && (!rare || runs >= 6*len(kinds)) {
			t.Errorf("there was nothing of this: %s", name)
		}
	}
}

// seedOf returns the seed that REDISLOCK_TEST_SEED names, or this one.
func seedOf(seed uint64) uint64 {
	if named, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
		return named
	}
	return seed
}

// play runs one schedule. It returns which promises were broken, and what has happened.
func play(t *testing.T, k kind, seed uint64) (problems []string, seen counts) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		m := newModel(t, k, seed)
		m.run()
		seen = maps.Clone(m.judge().Checked)
		seen.add(m.seen)
		problems = m.problems
	})
	return problems, seen
}

// kind is what happens in a schedule.
type kind struct {
	name string

	// Which servers there are.
	quorum bool // three, with a guard each
	two    bool // one, with a replica that takes over

	// What happens to them, and how often, compared with the others.
	flush    int // a server is emptied
	restart  int // it starts again, with nothing, with what it had a while ago, or with all
	unmark   int // its marker is deleted
	failover int // the replica takes over, and the old master goes on for a while

	// What the network and the clients do.
	messy   bool // messages are late, lost and doubled, and clients stand still
	echoes  bool // callers take turns, releases arrive again, late, and so does a handle of the first holder
	late    bool // messages are late, and none is lost
	narrow  bool // all want the same key
	short   bool // some locks last for little longer than a deposed master goes on
	long    bool // all locks last for the longest ttl
	custom  bool // some callers choose their tokens, crash, and use them again
	lapses  bool // one caller refreshes locks that have lapsed
	parted  bool // the old master does not receive what the new one has, and takes over again
	cuts    bool // the connection of a late refresh is cut
	tidies  bool // callers release what is being refreshed, and nothing may stay behind
	without wrong
}

// wrong is what a schedule does wrong on purpose, for TestControls.
type wrong struct {
	noGuard  bool // one client has no guard
	noTime   bool // the clients allow no time for a deposed master
	sameRun  bool // the identity of a server is that of its run
	overlong bool // one client has locks that last for twice the longest ttl
}

var kinds = []kind{
	{name: "a server that forgets", flush: 2, restart: 3, unmark: 1},
	{name: "a replica that takes over", two: true, failover: 3, flush: 1, restart: 1, unmark: 1},
	{name: "a messy network", two: true, failover: 2, flush: 1, restart: 2, messy: true},
	{name: "a master that goes on", two: true, failover: 1, narrow: true, short: true},
	{name: "the old master again", two: true, failover: 1, narrow: true, parted: true},
	{name: "long locks", flush: 2, restart: 1, narrow: true, long: true},
	{name: "releases that arrive again", narrow: true, echoes: true},
	{name: "tokens that are used again", two: true, restart: 3, failover: 1, narrow: true, custom: true},
	{name: "locks that lapse", flush: 1, narrow: true, long: true, lapses: true},
	{name: "nothing stays behind", flush: 1, late: true, cuts: true, tidies: true},
	{name: "a quorum that forgets", quorum: true, flush: 2, restart: 2, unmark: 1},
	{name: "a quorum on a messy network", quorum: true, flush: 1, restart: 2, messy: true},
}

const clients = 4

// model is one schedule.
type model struct {
	*record
	kind
	shares  bool // some keys are shared
	mode    int  // how, by custom tokens
	deposed time.Duration
	groups  []*group
	all     []*node
	clients []*redislock.Client

	fates   sync.Mutex // protects the fields below
	random  *rand.Rand
	calm    bool
	doubled bool              // requests arrive again, late
	stopped map[int]time.Time // by client: it stands still until then
}

func newModel(t *testing.T, k kind, seed uint64) *model {
	m := &model{
		kind: k, random: rand.New(rand.NewPCG(seed, 37)), stopped: map[int]time.Time{}, deposed: 300 * time.Millisecond,
	}
	m.shares, m.mode = m.random.IntN(2) == 0, m.random.IntN(4)
	longest := time.Second
	if k.tidies {
		longest = 30 * time.Second
	}
	m.record = newRecord(longest)
	if !k.two {
		m.deposed = 0
	}
	servers := 1
	if k.quorum {
		servers = 3
	}
	for range servers {
		nodes := []*node{newNode()}
		if k.two {
			nodes = append(nodes, newNode())
		}
		for _, n := range nodes {
			n.SetLatency(nil)
			n.Decide(m.fate)
			t.Cleanup(n.End)
			m.all = append(m.all, n)
		}
		g := newGroup(nodes...)
		allowed := m.allowed()
		open := fmt.Sprintf("%s %d %d", g.master.self.ID(), (m.maxTTL + allowed).Milliseconds(), allowed.Milliseconds())
		_ = g.master.Memory.Set(keyname.GuardMarker, open) // saves the first closure
		m.groups = append(m.groups, g)
	}
	for i := range clients {
		m.clients = append(m.clients, m.connect(t, i))
	}
	return m
}

// connect returns a Client of its own.
func (m *model) connect(t *testing.T, i int) *redislock.Client {
	var servers []redislock.RedisClient
	for _, g := range m.groups {
		client := g.master.Connect(i+1, func(opt *redis.Options) {
			opt.Dialer, opt.ReadTimeout, opt.DialerRetries = g.dialer(i+1), 300*time.Millisecond, 1
			if m.late {
				opt.ReadTimeout = 3 * time.Second
			}
		})
		t.Cleanup(func() { _ = client.Close() })
		servers = append(servers, client)
	}
	opts := []redislock.ClientOption{redislock.WithTracer(&redislock.Tracer{
		GuardClosed: func(context.Context, redislock.GuardClosed) { m.count(closures) },
		Restored:    func(context.Context, redislock.Restored) { m.count(putBack) },
	})}
	switch {
	case i == 0 && m.without.noGuard:
	default:
		opts = append(opts, redislock.WithGuard(m.maxTTL, m.allowed()))
	}
	var locks *redislock.Client
	if m.quorum {
		locks = redislock.NewQuorum(servers, opts...)
	} else {
		locks = redislock.New(servers[0], opts...)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// allowed returns for how long the clients allow a deposed master to go on.
func (m *model) allowed() time.Duration {
	if m.without.noTime {
		return 0
	}
	return m.deposed
}

// need returns how many servers mint a fencing token together.
func (m *model) need() int { return len(m.groups)/2 + 1 }

func (m *model) intN(n int) int {
	m.fates.Lock()
	defer m.fates.Unlock()
	return m.random.IntN(n)
}

// upTo returns a random duration below d.
func (m *model) upTo(d time.Duration) time.Duration {
	m.fates.Lock()
	defer m.fates.Unlock()
	return m.anyOf(d)
}

func (m *model) anyOf(d time.Duration) time.Duration { return time.Duration(m.random.Int64N(int64(d))) }

// fate is what the network does to a request, or to a reply.
func (m *model) fate(msg faultproxy.Message) faultproxy.Action {
	m.fates.Lock()
	defer m.fates.Unlock()
	now := time.Now()
	delay, f := m.anyOf(300*time.Microsecond), faultproxy.Action{}
	switch {
	case m.calm:
	case m.messy:
		m.mess(&delay, &f, msg)
	case m.doubled && !msg.Reply && faultproxy.Command("evalsha", "eval")(msg.Args):
		f = faultproxy.RepeatRequestAfter(100*time.Millisecond + m.anyOf(500*time.Millisecond))
	case m.late && m.random.IntN(4) == 0:
		delay = m.anyOf(400 * time.Millisecond)
		if m.cuts && !msg.Reply && refreshes(msg.Args) && m.random.IntN(2) == 0 {
			f = faultproxy.CutClient()
		}
	}
	if !m.calm {
		delay = max(delay, m.stopped[msg.Client].Sub(now))
	}
	return faultproxy.DelayRequest(delay).And(faultproxy.DelayReply(delay)).And(f) // each message heeds its part
}

// refreshes does not know a refresh.lua that TestControls has edited. So controls with such edits need a kind without a messy
// network.
var refreshes = spec.Running("refresh")

// shortens reports whether a request is a Refresh, which may shorten a ttl, and no renewal.
func shortens(args []string) bool {
	if !refreshes(args) {
		return false
	}
	keys, _ := strconv.Atoi(args[2])
	return args[3+keys+3] == "0"
}

// mess is the fate of a message on a messy network.
func (m *model) mess(delay *time.Duration, f *faultproxy.Action, msg faultproxy.Message) {
	switch what := m.random.IntN(1000); {
	case what < 15:
		*delay = m.anyOf(2 * m.maxTTL)
	case what < 50:
		*delay = m.anyOf(50 * time.Millisecond)
	case what < 60 && msg.Reply:
		*f = spec.Lost(msg)
	case what < 60:
		*f, *delay = faultproxy.CutClient(), m.anyOf(2*m.maxTTL)
	case what < 66:
		*f = spec.Lost(msg)
	case what < 70:
		*f = faultproxy.SwallowReply()
	case what < 100 && !msg.Reply:
		again := 1 + m.anyOf(2*m.maxTTL)
		if shortens(msg.Args) { // an old one, sent again by nobody, would shorten the ttl behind the holder's back
			again = 1
		}
		*f = faultproxy.RepeatRequestAfter(again)
	}
}

func (m *model) run() {
	began := time.Now()
	over, stop := context.WithCancel(context.Background())
	var watcher, faults sync.WaitGroup
	watcher.Go(func() {
		m.watch(over, func() {
			for _, n := range m.all {
				n.remember()
			}
		})
	})
	switch {
	case m.tidies:
		m.tidy()
	case m.echoes:
		m.echo()
	default:
		faulty, end := context.WithCancel(over)
		faults.Go(func() { m.fail(faulty) })
		if m.messy {
			faults.Go(func() { m.stall(faulty) })
		}
		m.within(time.Minute, "a call does not return", func(i int) {
			for time.Since(began) < 8*time.Second {
				m.call(i)
			}
		})
		end()
		faults.Wait()
	}
	m.fates.Lock()
	m.calm = true
	m.fates.Unlock()
	if !m.tidies {
		time.Sleep(4 * time.Second) // what was on its way is over
		m.within(30*time.Second, "somebody still waits in line", m.last)
		time.Sleep(8 * time.Second) // a line to which a late try has added a waiter lasts for 7 s
		m.final()
	}
	stop()
	watcher.Wait()
}

const callers = 6

// within makes all callers do something, and reports a problem if they have not done it within the limit.
func (m *model) within(limit time.Duration, problem string, do func(caller int)) {
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() { do(i) })
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
		m.problem("%s", problem)
		<-done
	}
}

// final notes what the servers hold when all is over.
func (m *model) final() {
	e := history.Event{Kind: history.Final}
	for i, g := range m.groups {
		master, _ := g.nodes()
		for _, h := range master.holds() {
			h.Server = i + 1
			e.Held = append(e.Held, h)
		}
	}
	m.note(e)
}

// explained counts an obtain that was refused because the guard was closed.
func (m *model) explained(err error) {
	var refused *redislock.RefusedError
	if errors.As(err, &refused) && refused.Closed > 0 {
		m.count(refusals)
	}
}
