package line_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Random lines", func(on *spec.Redis) {
	It("match a simple model, and lose no waiter", Label(spec.Random), func(ctx SpecContext) {
		judged := 0
		for range spec.Schedules(map[string]int{spec.InMemory: 25, spec.OnServer: 80}[on.Kind]) {
			Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
			seed := rand.Uint64()
			if named, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
				seed = named // of a failure, on the in-memory Redis: a real server has a clock of its own
			}
			switch problem, past := randomLines(ctx, on, seed); problem {
			case "":
				judged++
			case unclear:
			default:
				Fail(fmt.Sprintf("seed %d: %s\nafter %s", seed, problem, strings.Join(past, "\n      ")))
			}
		}
		Expect(judged).To(BeNumerically(">", 0))
	})
}) // not with those of the line, which wait the longest on a real server

// randomLines runs one history. It returns the first difference from the model, or "", and what was done.
func randomLines(ctx context.Context, on *spec.Redis, seed uint64) (problem string, past []string) {
	inbox := on.Client.Subscribe(ctx, spec.Inboxes+"last")
	defer inbox.Close()
	if _, err := inbox.Receive(ctx); err != nil {
		return err.Error(), nil
	}
	h := newQueueHistory(on, inbox, rand.New(rand.NewPCG(seed, 1)))
	return h.run(ctx, 60), h.past
}

const (
	slack   = 50_000 // in µs: how long a real server may take for a step
	unclear = "a step took so long, or so little time decides, that the model cannot tell"
)

// queueLines are the lock keys of the histories, each with its line.
var queueLines = map[string]string{
	"a":     "a{a}:redislock:line",
	"b":     "b{b}:redislock:line",
	"c c":   "c c{c c}:redislock:line",
	"d{x}":  "d{x}:redislock:line",
	"{x}:e": "{x}:e:redislock:line",
}

var queueKeys = slices.Sorted(maps.Keys(queueLines))

// withLines returns keys, then the line of each.
func withLines(keys []string, of ...string) []string {
	all := slices.Clone(keys)
	for _, key := range of {
		all = append(all, queueLines[key])
	}
	return all
}

// contender is somebody who obtains keys. One with an id waits in line when it is refused.
type contender struct {
	keys   []string
	token  string
	ttl    int64 // in ms
	fence  string
	id     string
	wants  int   // how many keys it may be handed: all or none
	open   bool  // it says that its subscription is open
	ticket int64 // 0: none yet
	dead   bool  // it has fallen silent, which nobody may have noticed yet
	unread bool  // it was handed its keys, and does not know
}

// box returns the name of the inbox of the contender.
func (c *contender) box() string {
	box, _, _ := strings.Cut(c.id, "/")
	return box
}

// entry returns what stands in the lines for the contender.
func (c *contender) entry() string {
	return fmt.Sprintf("%s %d %d %d %s%s", c.id, c.wants, c.ttl, len(c.fence), c.fence, c.token)
}

// queueModel is what Redis should hold.
type queueModel struct {
	now     int64 // in µs
	locks   map[string]modelLock
	lines   map[string][]modelWaiter // by lock key; in order
	expires map[string]int64         // how long the lines have left, in µs
	fences  map[string]int64
	cost    int64           // what the interval is multiplied by
	gone    map[string]bool // inboxes that nobody listens to
	vague   bool            // what a script does depends on less time than it may take
}

type modelLock struct {
	token string
	left  int64 // in µs
}

type modelWaiter struct {
	*contender
	ticket   int64
	deadline int64 // in ms
	life     int64 // in ms
	open     bool  // as it said at its last try
}

func inOrder(p, q modelWaiter) int {
	return cmp.Or(cmp.Compare(p.ticket, q.ticket), cmp.Compare(p.entry(), q.entry()))
}

func (m *queueModel) left(p modelWaiter) int64 { return p.deadline - m.now/1000 }

func (m *queueModel) live(p modelWaiter) bool {
	return m.left(p) >= 0 && m.left(p) <= p.life+1000
}

func (m *queueModel) late(p modelWaiter) bool { return 3*m.left(p) < p.life }

// isGone reports whether a message to the waiter would show that its process is gone.
func (m *queueModel) isGone(p modelWaiter) bool { return p.open && m.gone[p.box()] }

func (m *queueModel) holds(key, token string) bool { return m.locks[key].token == token }

// pass moves the clock. Where it jumps back, nothing lasts longer.
func (m *queueModel) pass(d int64) {
	m.now += d
	for _, key := range queueKeys {
		lock := m.locks[key]
		if lock.left -= max(d, 0); lock.left > 0 {
			m.locks[key] = lock
		} else {
			delete(m.locks, key)
		}
		if m.expires[key] -= max(d, 0); m.expires[key] <= 0 {
			delete(m.lines, key)
		}
	}
}

func (m *queueModel) remove(key string, gone func(p modelWaiter) bool) {
	m.lines[key] = slices.DeleteFunc(m.lines[key], gone)
}

// first returns the first live one in a line, from that position on.
func (m *queueModel) first(key string, from int) (modelWaiter, bool) {
	for _, p := range m.lines[key][min(from, len(m.lines[key])):] {
		if m.live(p) {
			return p, true
		}
	}
	return modelWaiter{}, false
}

// verdict is what comes of a script.
type verdict struct {
	granted       bool
	reply         any      // of a waiter that is refused: see below
	wait          int64    // its hint, in ms
	least, most   int64    // its interval
	ticket        int64    // the ticket that it keeps; 0: it gets a new one,
	above, below  int64    // higher than all that stay, and no higher than it needs to be
	missing, lost bool     // it had a ticket, and no position in some line, or only one as dead
	lines         []string // of keys, which last for that long at least, in ms
	lasts         int64
	told          map[string]string // by id: who gets a message, and the words of it after the number
	may           map[string]bool   // by id: who may be woken as well
	handed        []*contender
	fault         string // what the script must not have done
}

// obtain is a try with a ticket, as far as the caller knows one. It leaves it to enter to take a position. Which of the dead
// the script has removed is its own affair, as long as they were at the front: stays tells.
func (m *queueModel) obtain(c *contender, known int64, stays func(key, id string) bool) verdict {
	v := verdict{wait: 1, ticket: known, told: map[string]string{}, may: map[string]bool{}, least: math.MaxInt64}
	queued := false
	var blocked []int
	held := spec.List{int64(0)}
	for i, key := range c.keys {
		lock, taken := m.locks[key]
		queued = queued || len(m.lines[key]) > 0
		switch {
		case taken && lock.token == c.token:
			held = append(held, int64(i+1))
		case taken:
			blocked = append(blocked, i)
		}
		waiting := int64(len(m.lines[key]))
		if known == 0 {
			waiting++
		}
		interval := (waiting*(32+8*int64(len(c.keys)))*m.cost + 99) / 100
		v.least, v.most = min(v.least, max(interval, 1000)), max(v.most, interval, 1000)
	}
	at := slices.IndexFunc(m.lines[c.keys[0]], func(p modelWaiter) bool { return p.id == c.id })
	if known == 0 && c.id != "" && at >= 0 {
		v.ticket = m.lines[c.keys[0]][at].ticket
	}
	mine := len(held) > 1
	me := modelWaiter{contender: c, ticket: v.ticket}
	before := func(p modelWaiter) bool { return p.id != c.id && (v.ticket == 0 || inOrder(p, me) < 0) }
	moved := map[string]bool{}
	for _, key := range c.keys {
		var stay []modelWaiter
		there, dead := false, false
		for _, p := range m.lines[key] {
			v.below = max(v.below, p.ticket)
			there = there || p.id == c.id
			dead = dead || p.id == c.id && !m.live(p)
			if p.id != c.id && !stays(key, p.id) {
				if m.live(p) && !m.isGone(p) {
					v.fault = fmt.Sprintf("%s is live, and was removed from the line of %q", p.id, key)
				}
				moved[key] = true
				continue
			}
			stay = append(stay, p)
			if p.id != c.id || m.live(p) { // else it may have been removed, and has been added again
				v.above = max(v.above, p.ticket)
			}
		}
		v.missing, v.lost = v.missing || known > 0 && !there, v.lost || dead
		m.lines[key] = stay
	}
	// What blocks is taken by those ahead first, so it is enough to look at one line then.
	refused := len(blocked) > 0
	ahead := func(key string) bool {
		p, found := m.first(key, 0)
		if !found || !before(p) {
			return false
		}
		v.wait = max(v.wait, m.left(p)+1)
		for i := len(m.lines[key]) - 1; c.id != "" && v.wait < v.least && i >= 0; i-- {
			if q := m.lines[key][i]; before(q) && (v.ticket == 0 || q.ticket < v.ticket) { // right before it, live or not
				v.wait = max(v.wait, m.left(q)+1)
				break
			}
		}
		return true
	}
	switch {
	case refused && c.id != "":
		if queued {
			ahead(c.keys[blocked[0]])
		}
		if v.wait < v.least {
			v.wait = max(v.wait, m.locks[c.keys[blocked[0]]].left/1000+1)
			if v.wait < v.least {
				v.wait = max(v.wait, m.locks[c.keys[blocked[len(blocked)-1]]].left/1000+1)
			}
		}
	case !refused && !mine:
		for _, key := range c.keys {
			if ahead(key) {
				refused = true
				if c.id == "" || v.wait >= v.least {
					break
				}
			}
		}
	}
	v.granted, v.reply = !refused, int64(0)
	for _, key := range c.keys {
		p, found := m.first(key, 0)
		if !found || p.id == c.id {
			continue
		}
		v.may[p.id] = v.may[p.id] || moved[key] || v.lost
		// A caller that takes its old position before the first again is the first itself.
		behind := !v.granted && v.ticket > 0 && inOrder(me, p) < 0
		if moved[key] && !behind && !v.granted && !m.isGone(p) {
			v.told[p.id] = ""
		}
	}
	if !v.granted {
		return v
	}
	for _, key := range c.keys {
		m.remove(key, func(p modelWaiter) bool { return p.id == c.id })
		m.warn(key, c.ttl, v, map[string]bool{})
		m.locks[key] = modelLock{c.token, max(m.locks[key].left, c.ttl*1000)}
	}
	v.reply = held
	if !mine && c.fence == "" {
		v.reply = int64(1)
	}
	return v
}

// warn notes whom a script tells that a key is taken for so many ms.
func (m *queueModel) warn(key string, ttl int64, v verdict, gone map[string]bool) {
	if p, found := m.first(key, 0); found && m.looks(key, ttl) && 3*ttl < p.life {
		m.tell(p, fmt.Sprint("after ", ttl), v, gone)
	}
}

// looks reports whether a script that takes a key for so many ms looks who is next: not if the line expires before.
func (m *queueModel) looks(key string, ttl int64) bool {
	longer := m.expires[key] - ttl*1000
	m.vague = m.vague || len(m.lines[key]) > 0 && max(longer, -longer) < slack
	return longer > 0
}

// tell notes a message to a waiter, one at most, and whether it shows that the waiter's process is gone.
func (m *queueModel) tell(p modelWaiter, words string, v verdict, gone map[string]bool) {
	if _, told := v.told[p.id]; !told {
		v.told[p.id] = words
	}
	if m.isGone(p) {
		gone[p.box()] = true
	}
}

// enter is a position in line taken, or kept, by who was refused.
func (m *queueModel) enter(c *contender, life int64) {
	for _, key := range c.keys {
		m.remove(key, func(p modelWaiter) bool { return p.id == c.id })
		m.lines[key] = append(m.lines[key], modelWaiter{c, c.ticket, m.now/1000 + life, life, c.open})
		slices.SortFunc(m.lines[key], inOrder)
	}
}

// release is what the script does for a holder with a fence key, "" for none, and for a waiter that leaves.
func (m *queueModel) release(keys []string, token, fence string, lines []string, leaver string) verdict {
	v := verdict{reply: int64(0), told: map[string]string{}}
	lost := spec.List{}
	deleted, stirred := map[string]bool{}, map[string]bool{}
	for i, key := range keys {
		_, taken := m.locks[key]
		switch {
		case m.holds(key, token):
			delete(m.locks, key)
			deleted[key] = true
		case taken:
			lost = append(lost, int64(i+1))
		default:
			lost = append(lost, int64(-i-1))
		}
	}
	if len(lost) > 0 {
		v.reply = lost
	}
	for _, key := range lines {
		first := len(m.lines[key]) > 0 && m.lines[key][0].id == leaver
		stirred[key] = leaver == "" || deleted[key] || first
		m.remove(key, func(p modelWaiter) bool { return p.id == leaver })
	}
	gone := map[string]bool{} // inboxes that a message has shown to be gone
	for pending := lines; len(pending) > 0; {
		var order []modelWaiter
		stands := map[string][]string{}
		for _, key := range pending {
			if p, found, removed := m.serve(key, gone, 0); found && (stirred[key] || removed) {
				stirred[key] = true
				if stands[p.id] == nil {
					order = append(order, p)
				}
				stands[p.id] = append(stands[p.id], key)
			}
		}
		pending = nil
		for _, p := range order {
			at := stands[p.id]
			_, told := v.told[p.id]
			all := !slices.ContainsFunc(at, func(key string) bool { return !deleted[key] })
			switch {
			case !told && p.wants == len(at) && all && len(lines) == len(keys) && p.open && !m.late(p) &&
				(p.fence == "" || p.fence == fence):
				m.tell(p, "granted", v, gone)
				if m.isGone(p) {
					pending = append(pending, at...)
					break
				}
				for _, key := range at {
					m.remove(key, func(q modelWaiter) bool { return q.id == p.id })
				}
				v.handed = append(v.handed, p.contender)
				for _, key := range at {
					deleted[key] = false
					m.locks[key] = modelLock{p.token, p.ttl * 1000}
				}
				for _, key := range at {
					if !m.looks(key, p.ttl) {
						continue
					}
					if next, found, _ := m.serve(key, gone, 0); found && 3*p.ttl < next.life {
						m.tell(next, fmt.Sprint("after ", p.ttl), v, gone)
					}
				}
			default:
				m.tell(p, "", v, gone)
				for _, key := range at {
					if m.isGone(p) {
						pending = append(pending, key)
					} else if m.late(p) { // the next one is to look after it
						for {
							next, found, _ := m.serve(key, gone, 1)
							if found {
								m.tell(next, "", v, gone)
							}
							if !found || !m.isGone(next) {
								break
							}
						}
					}
				}
			}
		}
	}
	return v
}

// serve returns the first live one from a position on, but for those whose inbox is gone. It removes the dead before it,
// and those as well, if there is somebody else, and reports whether there were any.
func (m *queueModel) serve(key string, gone map[string]bool, from int) (first modelWaiter, found, removed bool) {
	passed := map[string]bool{}
	for i := from; i < len(m.lines[key]); {
		switch p := m.lines[key][i]; {
		case !m.live(p):
			m.lines[key] = slices.Delete(m.lines[key], i, i+1)
			removed = true
		case p.open && gone[p.box()]:
			passed[p.id] = true
			i++
		default:
			m.remove(key, func(q modelWaiter) bool { return passed[q.id] })
			return p, true, removed || len(passed) > 0
		}
	}
	return modelWaiter{}, false, removed
}

// queueHistory does random things to the locks and lines of Redis and to a model.
type queueHistory struct {
	on      *spec.Redis
	inbox   *redis.PubSub
	random  *rand.Rand
	source  map[string]string
	deadly  bool
	model   *queueModel
	count   int // of steps
	named   int // contenders
	boxes   []string
	waiting []*contender
	holding []*contender
	woken   map[string]bool // by id: a message came after the last try
	past    []string
	problem string // the first difference

	slack   float64 // how far the clock may be off, in µs
	clock   int64   // the server's at the last step, in µs
	settled int64   // on a real server: up to when the time that passed by itself is taken back
	lines   map[string]*redis.ZSliceCmd
	states  *redis.Cmd // what inspect.lua says of the lock keys, and then of the lines as keys
	fences  *redis.IntCmd
	size    *redis.IntCmd
}

// crowd is what the cost of a try is multiplied by in every other history: intervals get long, as where many wait.
const crowd = 1000

func newQueueHistory(on *spec.Redis, inbox *redis.PubSub, random *rand.Rand) *queueHistory {
	h := &queueHistory{
		on: on, inbox: inbox, random: random, deadly: random.IntN(2) == 0,
		source: map[string]string{"obtain": spec.Source("obtain"), "release": spec.Source("release"), "inspect": spec.Source("inspect")},
		model: &queueModel{
			locks: map[string]modelLock{}, lines: map[string][]modelWaiter{}, expires: map[string]int64{},
			fences: map[string]int64{}, gone: map[string]bool{}, cost: 1, now: 1.9e15,
		},
		woken: map[string]bool{},
	}
	if on.Memory != nil && random.IntN(2) == 0 { // on a real server nobody can tell what time it is exactly
		const cost = "(32 + 8 * n)"
		Expect(h.source["obtain"]).To(ContainSubstring(cost))
		h.model.cost = crowd
		h.source["obtain"] = strings.Replace(h.source["obtain"], cost, cost+fmt.Sprint(" * ", crowd), 1)
	}
	return h
}

// settle makes the time of a real server the model's: what has passed since ARGV[1] is taken back, and ARGV[2] µs pass.
// The ttls change by ARGV[3] ms too: they are long between steps, so that nothing expires while this process is held up.
const settle = `
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local idle = math.max(math.floor((now - ARGV[1]) / 1000), 0) * 1000
for _, key in ipairs(redis.call('KEYS', '*')) do
	local left = redis.call('PTTL', key)
	if left >= 0 then
		redis.call('PEXPIRE', key, left + idle / 1000 + ARGV[3])
	end
	for _, mark in ipairs(redis.call('TYPE', key).ok == 'zset' and redis.call('ZRANGEBYSCORE', key, '-inf', '(0') or {}) do
		redis.call('ZINCRBY', key, string.format('%.0f', (ARGV[2] - idle) / 1000 * 4096), mark)
	end
end
return {now, ARGV[1] + idle}`

// step lets d µs pass, does something, and looks at what Redis holds then, all at one moment.
func (h *queueHistory) step(ctx context.Context, d int64, do func(pipe redis.Pipeliner)) {
	h.count++
	h.model.pass(d)
	all := func(pipe redis.Pipeliner) error {
		do(pipe)
		h.lines = map[string]*redis.ZSliceCmd{}
		for _, key := range queueKeys {
			h.lines[key] = pipe.ZRangeWithScores(ctx, queueLines[key], 0, -1)
		}
		keys := withLines(queueKeys, queueKeys...)
		h.states = pipe.Eval(ctx, h.source["inspect"], withLines(keys, queueKeys...), len(keys))
		h.fences = pipe.Exists(ctx, "f1", "f2")
		h.size = pipe.DBSize(ctx)
		pipe.Publish(ctx, spec.Inboxes+"last", h.count) // arrives after all that the step publishes
		return nil
	}
	var err error
	if h.on.Memory != nil {
		h.clock = h.model.now
		h.on.Memory.SetTime(time.UnixMicro(h.clock))
		_, err = h.on.Client.Pipelined(ctx, all)
	} else {
		const hour, never = 3_600_000, 1 << 52
		var begin, end *redis.Cmd
		_, err = h.on.Client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			begin = pipe.Eval(ctx, settle, nil, h.settled, d, -max(d, 0)/1000-hour)
			_ = all(pipe)
			end = pipe.Eval(ctx, settle, nil, never, 0, hour)
			return nil
		})
		times, _ := begin.Int64Slice()
		late, _ := end.Int64Slice()
		if len(times) == 2 && len(late) == 2 {
			h.clock, h.settled = times[0], times[1]
			h.check(late[0]-h.clock < slack, unclear)
		}
	}
	h.check(err == nil, "error %v", err)
}

func (h *queueHistory) eval(ctx context.Context, script string, keys []string, args ...any) any {
	var reply *redis.Cmd
	h.step(ctx, 0, func(pipe redis.Pipeliner) { reply = pipe.Eval(ctx, h.source[script], keys, args...) })
	h.past = append(h.past, fmt.Sprint(script, " ", keys, " ", args, ": ", reply.Val()))
	return reply.Val()
}

func (h *queueHistory) check(ok bool, format string, args ...any) {
	if !ok && h.problem == "" {
		h.problem = fmt.Sprintf(format, args...)
	}
}

// near compares milliseconds.
func (h *queueHistory) near(got, want int64) bool {
	return math.Abs(float64(got-want)) <= 1+h.slack/1000
}

// compare holds what Redis holds, and whom it has woken, against the model.
func (h *queueHistory) compare(ctx context.Context, want verdict) {
	h.check(!h.model.vague, unclear)
	states, _ := h.states.Slice()
	h.check(len(states) == 8*len(queueKeys), "inspect: %v", h.states)
	if h.problem != "" {
		return
	}
	h.check(want.fault == "", "%s", want.fault)
	size := len(h.model.locks) + int(h.fences.Val())
	for i, key := range queueKeys {
		live, since, members := int64(0), int64(0), map[string]float64{}
		for _, p := range h.model.lines[key] {
			members[p.entry()], members["~"+p.id] = float64(p.ticket), h.mark(p)
			if h.model.left(p) >= 0 {
				live++
			}
			if h.model.live(p) {
				since = cmp.Or(since, p.ticket)
			}
		}
		line := h.lines[key].Val()
		h.check(len(line) == len(members), "the line of %q is %v, want %v", key, line, members)
		for _, z := range line {
			member, _ := z.Member.(string)
			score, expected := members[member]
			near := z.Score == score
			if member[0] == '~' { // the last 12 bits have to be right, the time nearly so
				near = math.Mod(-z.Score, 4096) == math.Mod(-score, 4096) && math.Abs(z.Score-score)/4096 <= 1+h.slack/1000
			}
			h.check(expected && near, "the line of %q is %v, want %v", key, line, members)
		}
		if len(line) > 0 {
			size++
			left, _ := states[4*(i+len(queueKeys))+1].(int64)
			h.check(left > 0 && float64(left)+2+h.slack/1000 >= float64(want.lasts) || !slices.Contains(want.lines, key),
				"the line of %q lasts %d ms, want %d", key, left, want.lasts)
			h.model.expires[key] = min(max(left*1000, 1), 1_000_000_000)
		}
		lock, taken := h.model.locks[key]
		value, _ := states[4*i].(string)
		left, _ := states[4*i+1].(int64)
		h.check(value == lock.token && (!taken || left > 0 && h.near(left, lock.left/1000)),
			"%q is %q for %d ms, want %+v", key, value, left, lock)
		h.check(states[4*i+2] == live && states[4*i+3] == since,
			"%q has %v waiters, since %v; want %d, since %d", key, states[4*i+2], states[4*i+3], live, since)
	}
	h.check(h.size.Val() == int64(size), "there are %d keys, want %d", h.size.Val(), size)

	got := map[string]string{}
	for last := ""; h.problem == "" && last == ""; {
		message, err := h.inbox.ReceiveMessage(ctx)
		if err != nil {
			h.check(false, "error %v", err)
			break
		}
		box := strings.TrimPrefix(message.Channel, spec.Inboxes)
		if box == "last" {
			last = message.Payload
			h.check(last == strconv.Itoa(h.count), "the messages of step %s came after step %d", last, h.count)
			break
		}
		number, words, _ := strings.Cut(message.Payload, " ")
		_, twice := got[box+"/"+number]
		h.check(!twice, "%s/%s is told twice", box, number)
		if fields := strings.Fields(words); len(fields) == 3 && fields[0] == "granted" {
			words = "granted"
			h.granted(box+"/"+number, fields[1], fields[2])
		}
		got[box+"/"+number] = words
	}
	for id, words := range got {
		expected, must := want.told[id]
		h.check(must && words == expected || words == "" && want.may[id], "%s is told %q, want %q", id, words, want.told)
		h.woken[id] = h.woken[id] || words == ""
	}
	for id, words := range want.told {
		box, _, _ := strings.Cut(id, "/")
		_, found := got[id]
		h.check(found || h.model.gone[box], "%s is not told %q", id, words)
	}
	for _, c := range want.handed {
		h.waiting = without(h.waiting, c)
		switch {
		case c.dead: // it holds the keys until they lapse
		case h.random.IntN(4) == 0: // the message is lost
			c.unread = true
			h.waiting = append(h.waiting, c)
		default:
			h.holding = append(h.holding, c)
		}
	}
}

// mark is the score of the mark of a position, as the server's clock has it.
func (h *queueHistory) mark(p modelWaiter) float64 {
	score := (h.clock/1000+h.model.left(p))*4096 + p.life/1000*2
	if p.open {
		score++
	}
	return -float64(score)
}

// granted is what a message says of a hand-off.
func (h *queueHistory) granted(id, at, fence string) {
	when, err := strconv.ParseInt(at, 10, 64)
	h.check(err == nil && math.Abs(float64(when-h.clock)) <= h.slack, "%s is granted its keys at %s, and it is %d", id, at, h.clock)
	minted, err := strconv.ParseInt(fence, 10, 64)
	h.check(err == nil, "%s gets the fencing token %q", id, fence)
	for _, c := range h.waiting {
		if c.id == id {
			h.minted(c, minted)
		}
	}
}

// minted checks the fencing token of a grant.
func (h *queueHistory) minted(c *contender, fence int64) {
	if c.fence == "" {
		h.check(fence == 0, "%s gets the fencing token %d", c.token, fence)
		return
	}
	h.check(fence > h.model.fences[c.fence], "%s gets the fencing token %d after %d", c.token, fence, h.model.fences[c.fence])
	h.model.fences[c.fence] = fence
}

func without(all []*contender, c *contender) []*contender {
	return slices.DeleteFunc(all, func(other *contender) bool { return other == c })
}

// try obtains for c, which believes to have this ticket.
func (h *queueHistory) try(ctx context.Context, c *contender, ticket int64) {
	keys, args := slices.Clone(c.keys), []any{c.token, "", c.ttl, len(c.keys), "0"}
	if c.fence != "" {
		keys, args[4] = append(keys, c.fence), "1"
	}
	if c.id != "" {
		open := "0"
		if c.open {
			open = "1"
		}
		args = append(args, "0", c.entry(), ticket, open)
	}
	delete(h.woken, c.id)
	c.unread = false
	reply := h.eval(ctx, "obtain", withLines(keys, c.keys...), args...)
	want := h.model.obtain(c, ticket, func(key, id string) bool {
		return slices.ContainsFunc(h.lines[key].Val(), func(z redis.Z) bool { return z.Member == "~"+id })
	})
	refusal, _ := reply.(spec.List)
	switch {
	case want.granted && c.fence != "" && len(refusal) > 0:
		fence, _ := refusal[0].(int64)
		h.minted(c, fence)
		refusal[0] = int64(0)
		fallthrough
	case want.granted || c.id == "":
		h.check(fmt.Sprint(reply) == fmt.Sprint(want.reply), "want %v", want.reply)
		if want.granted {
			h.waiting, h.holding = without(h.waiting, c), append(without(h.holding, c), c)
		}
	case len(refusal) != 6 || refusal[0] != int64(-1):
		h.check(false, "want a position in line")
	default:
		wait, _ := refusal[1].(int64)
		c.ticket, _ = refusal[2].(int64)
		at, _ := refusal[3].(int64)
		life, _ := refusal[4].(int64)
		h.check(wait >= 1 && wait <= want.most && h.near(min(wait, want.least), min(want.wait, want.least)),
			"is to wait for %d ms, want %d, or %d at least", wait, want.wait, want.least)
		least, most := max(h.clock, want.above+1), max(h.clock+int64(h.slack), want.below+1)
		h.check(c.ticket == want.ticket || want.ticket == 0 && c.ticket >= least && c.ticket <= most,
			"want the ticket %d, or one from %d to %d", want.ticket, least, most)
		h.check(math.Abs(float64(at-h.clock)) <= h.slack, "it is %d and not %d", h.clock, at)
		h.check(life%1000 == 0 && life >= 3*want.least && life < 3*want.most+1000, "want a life of %d to %d ms",
			3*want.least, 3*want.most)
		h.check((refusal[5] == int64(1)) == want.missing || want.lost, "want missing to be %v", want.missing)
		h.model.enter(c, life)
		want.lines, want.lasts = c.keys, life
		h.waiting = append(without(h.waiting, c), c)
	}
	h.compare(ctx, want)
}

// release releases keys of c, and makes it leave the lines if that is asked for.
func (h *queueHistory) release(ctx context.Context, c *contender, keys []string, leaves bool) {
	all, leaver := withLines(keys, c.keys...), ""
	args := []any{c.token, len(keys)}
	if leaves {
		leaver = c.id
		args = append(args, c.entry())
		h.waiting = without(h.waiting, c)
	} else if c.fence != "" {
		all = withLines(append(slices.Clone(keys), c.fence), c.keys...)
		args = append(args, "", "1")
	}
	if len(keys) > 0 {
		h.holding = without(h.holding, c)
	}
	fence := c.fence
	if leaves {
		fence = ""
	}
	reply := h.eval(ctx, "release", all, args...)
	want := h.model.release(keys, c.token, fence, c.keys, leaver)
	h.check(fmt.Sprint(reply) == fmt.Sprint(want.reply), "want %v", want.reply)
	h.compare(ctx, want)
}

func (h *queueHistory) pass(ctx context.Context, d int64) {
	h.past = append(h.past, fmt.Sprintf("%d µs pass", d))
	h.step(ctx, d, func(redis.Pipeliner) {})
	h.compare(ctx, verdict{})
}

// newcomer returns somebody who was not there before, and who has an id if it waits.
func (h *queueHistory) newcomer(ctx context.Context, waits bool) *contender {
	h.named++
	keys := slices.Clone(queueKeys)
	h.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	c := &contender{keys: keys[:1+h.random.IntN(3)], token: fmt.Sprintf("t%d", h.named)}
	c.ttl = pick(h.random, []int64{600, 999, 1000, 30_200, 30_200, 30_200})
	c.fence = pick(h.random, []string{"", "", "", "f1", "f1", "f2"})
	if waits {
		c.id = fmt.Sprintf("%s/%d", h.box(ctx), h.named)
		c.open = h.random.IntN(5) > 0
		if c.wants = len(c.keys); h.random.IntN(6) == 0 {
			c.wants = 0
		}
	}
	return c
}

// box returns an inbox that somebody listens to, of three at a time.
func (h *queueHistory) box(ctx context.Context) string {
	if len(h.boxes) < 3 {
		box := fmt.Sprint("box", len(h.model.gone)+len(h.boxes))
		h.boxes = append(h.boxes, box)
		h.check(h.inbox.Subscribe(ctx, spec.Inboxes+box) == nil, "cannot subscribe")
		h.confirm(ctx)
	}
	return pick(h.random, h.boxes)
}

// confirm waits until what the inbox listens to has changed.
func (h *queueHistory) confirm(ctx context.Context) {
	for h.problem == "" {
		switch message, err := h.inbox.Receive(ctx); message.(type) {
		case *redis.Subscription:
			return
		default:
			h.check(false, "%v, %v in the place of a confirmation", message, err)
		}
	}
}

// kill ends the process of an inbox, and with it all of its waiters.
func (h *queueHistory) kill(ctx context.Context, box string) {
	h.past = append(h.past, box+" is killed")
	h.boxes = slices.DeleteFunc(h.boxes, func(other string) bool { return other == box })
	h.model.gone[box] = true
	h.check(h.inbox.Unsubscribe(ctx, spec.Inboxes+box) == nil, "cannot unsubscribe")
	h.confirm(ctx)
	for _, c := range h.waiting {
		c.dead = c.dead || c.box() == box
	}
}

func pick[E any](random *rand.Rand, from []E) E { return from[random.IntN(len(from))] }

// alive returns who waits and will try again.
func (h *queueHistory) alive() []*contender {
	return slices.DeleteFunc(slices.Clone(h.waiting), func(c *contender) bool { return c.dead })
}

// run does so many random steps and lets everybody finish. It returns the first difference, or "".
func (h *queueHistory) run(ctx context.Context, steps int) string {
	// The ages that come of these times are far from 1, 2 and 3 s where the clock cannot be told.
	passing, jumps := []int64{800_000, 800_000, 1_600_000, 2_400_000, 3_200_000}, []int64{-800_000, -1_600_000, -5_600_000}
	if h.on.Memory != nil {
		passing, jumps = []int64{1, 1_000_000, 1_000_000, 2_000_000, 3_000_001}, []int64{-1_000_000, -1_000_001, -5_000_000}
	} else {
		h.slack = 1.2 * slack
	}
	for h.count < steps && h.problem == "" {
		alive := h.alive()
		switch what := h.random.IntN(100); {
		case what < 18 && len(alive) < 8:
			h.try(ctx, h.newcomer(ctx, true), 0)
		case what < 26:
			h.try(ctx, h.newcomer(ctx, false), 0)
		case what < 38:
			h.pass(ctx, pick(h.random, passing))
		case what < 40:
			h.pass(ctx, pick(h.random, jumps))
		case what < 65 && len(alive) > 0:
			c := pick(h.random, alive)
			h.try(ctx, c, c.ticket*int64(min(h.random.IntN(4), 1))) // 0: as if the reply had been lost
		case what < 70 && len(h.waiting) > 0:
			c := pick(h.random, h.waiting)
			if c.wants > 0 { // a hand-off may have come first
				h.release(ctx, c, c.keys, true)
			} else {
				h.release(ctx, c, nil, true)
			}
		case what < 75 && len(alive) > 0 && h.deadly:
			c := pick(h.random, alive)
			c.dead = true
			h.past = append(h.past, c.id+" dies")
			if h.random.IntN(3) > 0 {
				h.kill(ctx, c.box())
			}
		case len(h.holding) > 0:
			h.hold(ctx, pick(h.random, h.holding), what)
		}
	}
	h.finish(ctx)
	return h.problem
}

// hold is what happens to a holder, and to what it holds.
func (h *queueHistory) hold(ctx context.Context, c *contender, what int) {
	switch key := pick(h.random, c.keys); {
	case what < 76:
		h.past = append(h.past, "del "+key)
		delete(h.model.locks, key)
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.Del(ctx, key) })
		h.compare(ctx, verdict{})
	case what < 78:
		thief := h.newcomer(ctx, false)
		thief.keys = []string{key}
		h.past = append(h.past, thief.token+" steals "+key)
		h.holding = append(h.holding, thief)
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.Set(ctx, key, thief.token, time.Minute) })
		h.model.locks[key] = modelLock{thief.token, time.Minute.Microseconds()}
		h.compare(ctx, verdict{})
	case what < 81 && !h.model.gone[c.box()]: // a replay
		h.try(ctx, c, c.ticket)
	case what < 85: // more keys, one of which may be its own
		more := h.newcomer(ctx, h.random.IntN(2) == 0)
		more.token, more.wants = c.token, 0
		if !slices.Contains(more.keys, key) && h.random.IntN(3) > 0 {
			more.keys = append(more.keys, key)
		}
		h.try(ctx, more, 0)
	case what < 88:
		h.release(ctx, c, c.keys, c.id != "")
	default:
		h.release(ctx, c, c.keys, false)
	}
}

// deadInLine reports whether somebody who is dead still counts as live, or still holds keys, or does not know that it
// does.
func (h *queueHistory) deadInLine() bool {
	for _, key := range queueKeys {
		token := h.model.locks[key].token
		if token != "" && !slices.ContainsFunc(h.holding, func(c *contender) bool { return c.token == token }) {
			return true
		}
	}
	return slices.ContainsFunc(h.waiting, func(c *contender) bool {
		return c.unread && !c.dead || c.dead && slices.ContainsFunc(c.keys, func(key string) bool {
			return slices.ContainsFunc(h.model.lines[key], func(p modelWaiter) bool { return p.id == c.id && h.model.live(p) })
		})
	})
}

// finish makes every holder release, and every waiter try again as it would: when it is woken, and each second. No
// second may pass for want of a message, but only where the dead are in the way.
func (h *queueHistory) finish(ctx context.Context) {
	second := func() {
		h.pass(ctx, 800_000)
		for _, c := range h.alive() {
			if h.problem == "" {
				h.try(ctx, c, c.ticket)
			}
		}
	}
	second()
	for patient := h.random.IntN(2) == 0; patient && h.deadInLine() && h.problem == ""; {
		second()
	}
	for h.problem == "" {
		woken := slices.DeleteFunc(h.alive(), func(c *contender) bool { return !h.woken[c.id] })
		switch n := len(woken) + len(h.holding); {
		case n > 0 && h.random.IntN(n) < len(woken):
			c := pick(h.random, woken)
			h.try(ctx, c, c.ticket)
		case n > 0:
			c := pick(h.random, h.holding)
			h.release(ctx, c, c.keys, false)
		case len(h.alive()) == 0:
			h.pass(ctx, 60_000_000)
			h.check(h.size.Val() == h.fences.Val(), "%d keys are left", h.size.Val())
			return
		default:
			h.check(h.deadInLine(), "nobody wakes %+v", *h.alive()[0])
			second()
		}
	}
}
