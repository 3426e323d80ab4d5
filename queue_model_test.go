package redislock_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"
)

var _ = describe("Random lines", func(on *onRedis) {
	It("are what a simple model says, and lose nobody", func(ctx SpecContext) {
		inbox := on.client.PSubscribe(ctx, inboxes+"*")
		DeferCleanup(inbox.Close)
		Expect(inbox.Receive(ctx)).To(BeAssignableToTypeOf(&redis.Subscription{}))
		judged := 0
		for range map[string]int{inMemory: 60, onServer: 200}[on.kind] {
			Expect(on.client.FlushDB(ctx).Err()).To(Succeed())
			seed := rand.Uint64()
			h := newQueueHistory(on, inbox, rand.New(rand.NewPCG(seed, 1)))
			switch problem := h.run(ctx, 60); problem {
			case "":
				judged++
			case heldUp:
			default:
				Fail(fmt.Sprintf("seed %d: %s\nafter %s", seed, problem, strings.Join(h.past, "\n      ")))
			}
		}
		Expect(judged).To(BeNumerically(">", 0))
	})
})

const (
	inboxes = "redislock:inbox:"

	modelLife  = 3_000_000 // in µs: how long ago a live waiter was heard of at most,
	modelAhead = 1_000_000 // and how far ahead of the clock

	modelSilent = 2_000_000 // in µs: how long ago at least, for the next in line to look after it

	slack  = 50_000 // in µs: how long a real server may take for a step
	heldUp = "the server was held up for so long that the model cannot tell what time it is"
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
	id     string
	ticket int64 // 0: none yet
	dead   bool  // it has fallen silent, which nobody may have noticed yet
}

// queueModel is what Redis should hold.
type queueModel struct {
	now     int64 // in µs, as all that follows
	locks   map[string]modelLock
	lines   map[string][]modelPlace // by lock key; in order
	expires map[string]int64        // how long the lines have left
}

type modelLock struct {
	token string
	left  int64
}

type modelPlace struct {
	id            string
	ticket, heard int64
}

func inOrder(p, q modelPlace) int {
	return cmp.Or(cmp.Compare(p.ticket, q.ticket), cmp.Compare(p.id, q.id))
}

func (m *queueModel) live(p modelPlace) bool {
	return p.heard >= m.now-modelLife && p.heard <= m.now+modelAhead
}

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

func (m *queueModel) remove(key string, gone func(p modelPlace) bool) {
	m.lines[key] = slices.DeleteFunc(m.lines[key], gone)
}

// verdict is what comes of a script.
type verdict struct {
	granted      bool
	reply        any             // of a waiter that is refused: see below
	wait         int64           // its hint, in ms
	ticket       int64           // the ticket that it keeps; 0: it gets a new one,
	above, below int64           // higher than all that stay, and no higher than it needs to be
	woken, may   map[string]bool // by id: who is woken, and who may be as well
}

// obtain is a try with a ticket, as far as the caller knows one. It leaves it to enter to take a place. Which of the
// dead are removed is up to the script, if nobody waits for them any more: stays tells.
func (m *queueModel) obtain(c *contender, ticket int64, stays func(key, id string) bool) verdict {
	for _, key := range c.keys {
		for _, p := range m.lines[key] {
			if p.id == c.id && ticket == 0 {
				ticket = p.ticket
			}
		}
	}
	v := verdict{wait: 1, ticket: ticket, woken: map[string]bool{}, may: map[string]bool{}}
	held, refused, ahead := list{int64(0)}, false, false
	for i, key := range c.keys {
		lock, taken := m.locks[key]
		switch {
		case taken && lock.token == c.token:
			held = append(held, int64(i+1))
		case taken:
			refused = true
			v.wait = max(v.wait, lock.left/1000+1)
		}
	}
	mine := len(held) > 1
	for _, key := range c.keys {
		for _, p := range m.lines[key] {
			before := ticket == 0 || inOrder(p, modelPlace{id: c.id, ticket: ticket}) < 0
			if !mine && p.id != c.id && m.live(p) && before {
				ahead = true
				v.wait = max(v.wait, (p.heard+modelLife-m.now)/1000+1)
			}
		}
	}
	v.granted, v.reply = !refused && !ahead, int64(0)
	for _, key := range c.keys {
		line := m.lines[key]
		front := slices.IndexFunc(line, m.live) // how many dead are before the first
		moved := false
		m.lines[key] = nil
		for i, p := range line {
			v.below = max(v.below, p.ticket)
			gone := !m.live(p) && p.id != c.id && (!stays(key, p.id) || v.granted && !mine && (front < 0 || i < front))
			moved = moved || gone && i < front
			if !gone {
				m.lines[key] = append(m.lines[key], p)
				v.above = max(v.above, p.ticket)
			}
		}
		if front < 0 || line[front].id == c.id {
			continue
		}
		// A caller that takes its old place before the first again is the first itself.
		first := line[front]
		behind := !v.granted && ticket > 0 && inOrder(modelPlace{id: c.id, ticket: ticket}, first) < 0
		v.woken[first.id] = v.woken[first.id] || moved && !behind
		v.may[first.id] = v.may[first.id] || slices.ContainsFunc(line, func(p modelPlace) bool { return !m.live(p) })
	}
	if !v.granted {
		return v
	}
	for _, key := range c.keys {
		m.remove(key, func(p modelPlace) bool { return p.id == c.id })
		if c.ttl < 1000 {
			m.remove(key, func(p modelPlace) bool { return !m.live(p) && !stays(key, p.id) })
			if front := slices.IndexFunc(m.lines[key], m.live); front >= 0 {
				v.woken[m.lines[key][front].id] = true
			}
		}
		m.locks[key] = modelLock{c.token, max(m.locks[key].left, c.ttl*1000)}
	}
	v.reply = held
	if !mine {
		v.reply = int64(1)
	}
	return v
}

// enter is a place in line taken, or kept, by who was refused.
func (m *queueModel) enter(c *contender) {
	for _, key := range c.keys {
		m.remove(key, func(p modelPlace) bool { return p.id == c.id })
		m.lines[key] = append(m.lines[key], modelPlace{c.id, c.ticket, m.now})
		slices.SortFunc(m.lines[key], inOrder)
		m.expires[key] = modelLife
	}
}

func (m *queueModel) release(keys []string, token string, lines []string, id string) verdict {
	v := verdict{reply: int64(0), woken: map[string]bool{}}
	lost := list{}
	for i, key := range keys {
		_, taken := m.locks[key]
		switch {
		case m.holds(key, token):
			delete(m.locks, key)
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
		var stay []modelPlace
		looks, moved, live := true, len(keys) > 0, 0
		for _, p := range m.lines[key] {
			if p.id == id || looks && !m.live(p) {
				moved = true
				continue
			}
			stay = append(stay, p)
			v.woken[p.id] = v.woken[p.id] || looks && moved
			live++
			looks = looks && moved && live < 2 && p.heard < m.now-modelSilent // then the second is to look after the first
		}
		m.lines[key] = stay
	}
	return v
}

// queueHistory does random things to the locks and lines of Redis and to a model.
type queueHistory struct {
	on      *onRedis
	inbox   *redis.PubSub
	random  *rand.Rand
	source  map[string]string
	deadly  bool
	model   *queueModel
	count   int // of steps
	named   int // contenders
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
	size    *redis.IntCmd
}

func newQueueHistory(on *onRedis, inbox *redis.PubSub, random *rand.Rand) *queueHistory {
	return &queueHistory{
		on: on, inbox: inbox, random: random, deadly: random.IntN(2) == 0,
		source: map[string]string{"obtain": source("obtain"), "release": source("release"), "inspect": source("inspect")},
		model:  &queueModel{locks: map[string]modelLock{}, lines: map[string][]modelPlace{}, expires: map[string]int64{}, now: 1.9e15},
		woken:  map[string]bool{},
	}
}

// settle makes the time of a real server the model's: what has passed since ARGV[1] is taken back, and ARGV[2] µs pass.
// The ttls change by ARGV[3] ms too: they are long between steps, so that nothing expires while this process is held
// up.
const settle = `
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local idle = math.max(math.floor((now - ARGV[1]) / 1000), 0) * 1000
for _, key in ipairs(redis.call('KEYS', '*')) do
	redis.call('PEXPIRE', key, redis.call('PTTL', key) + idle / 1000 + ARGV[3])
	for _, mark in ipairs(redis.call('TYPE', key).ok == 'zset' and redis.call('ZRANGEBYSCORE', key, '-inf', '(0') or {}) do
		redis.call('ZINCRBY', key, ARGV[2] - idle, mark)
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
		h.size = pipe.DBSize(ctx)
		pipe.Publish(ctx, inboxes+"last", h.count) // arrives after all that the step publishes
		return nil
	}
	var err error
	if h.on.memory != nil {
		h.clock = h.model.now
		h.on.memory.SetTime(time.UnixMicro(h.clock))
		_, err = h.on.client.Pipelined(ctx, all)
	} else {
		const hour, never = 3_600_000, 1 << 52
		var begin, end *redis.Cmd
		_, err = h.on.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			begin = pipe.Eval(ctx, settle, nil, h.settled, d, -max(d, 0)/1000-hour)
			_ = all(pipe)
			end = pipe.Eval(ctx, settle, nil, never, 0, hour)
			return nil
		})
		times, _ := begin.Int64Slice()
		late, _ := end.Int64Slice()
		if len(times) == 2 && len(late) == 2 {
			h.clock, h.settled = times[0], times[1]
			h.check(late[0]-h.clock < slack, heldUp)
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
	states, _ := h.states.Slice()
	h.check(len(states) == 8*len(queueKeys), "inspect: %v", h.states)
	if h.problem != "" {
		return
	}
	size := len(h.model.locks)
	for i, key := range queueKeys {
		live, since, want := int64(0), int64(0), map[string]float64{}
		for _, p := range h.model.lines[key] {
			want[p.id], want["~"+p.id] = float64(p.ticket), float64(h.model.now-p.heard-h.clock)
			if h.model.live(p) {
				live++
				since = cmp.Or(since, p.ticket)
			}
		}
		line := h.lines[key].Val()
		h.check(len(line) == len(want), "the line of %q is %v, want %v", key, line, want)
		for _, entry := range line {
			member, _ := entry.Member.(string)
			score, expected := want[member]
			near := entry.Score == score || member[0] == '~' && math.Abs(entry.Score-score) <= h.slack
			h.check(expected && near, "the line of %q is %v, want %v", key, line, want)
		}
		if len(line) > 0 {
			size++
			left, _ := states[4*(i+len(queueKeys))+1].(int64)
			h.check(left > 0 && h.near(left, h.model.expires[key]/1000), "the line of %q lasts %d ms", key, left)
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

	var got []string
	for last := ""; h.problem == "" && last == ""; {
		message, err := h.inbox.ReceiveMessage(ctx)
		if err != nil {
			h.check(false, "error %v", err)
		} else if box := strings.TrimPrefix(message.Channel, inboxes); box == "last" {
			last = message.Payload
			h.check(last == strconv.Itoa(h.count), "the messages of step %s came after step %d", last, h.count)
		} else {
			got = append(got, box+"/"+message.Payload)
		}
	}
	for _, id := range got {
		h.check(want.woken[id] || want.may[id], "%s is woken, want %v", id, want.woken)
	}
	for id, woken := range want.woken {
		h.check(!woken || slices.Contains(got, id), "%s is not woken", id)
	}
	slices.Sort(got)
	h.check(len(slices.Compact(slices.Clone(got))) == len(got), "woken twice: %v", got)
	for _, id := range got {
		h.woken[id] = true
	}
}

// try obtains for c, which believes to have this ticket.
func (h *queueHistory) try(ctx context.Context, c *contender, ticket int64) {
	args := []any{c.token, "", c.ttl, len(c.keys), "0"}
	if c.id != "" {
		args = append(args, c.id, ticket)
	}
	delete(h.woken, c.id)
	reply := h.eval(ctx, "obtain", withLines(c.keys, c.keys...), args...)
	want := h.model.obtain(c, ticket, func(key, id string) bool {
		return slices.ContainsFunc(h.lines[key].Val(), func(entry redis.Z) bool { return entry.Member == id })
	})
	without := func(all []*contender) []*contender {
		return slices.DeleteFunc(all, func(other *contender) bool { return other == c })
	}
	switch place, _ := reply.(list); {
	case want.granted || c.id == "":
		h.check(fmt.Sprint(reply) == fmt.Sprint(want.reply), "want %v", want.reply)
		if want.granted {
			h.waiting, h.holding = without(h.waiting), append(without(h.holding), c)
		}
	case len(place) != 3 || place[0] != int64(-1):
		h.check(false, "want a place in line")
	default:
		wait, _ := place[1].(int64)
		c.ticket, _ = place[2].(int64)
		h.check(wait >= 1 && wait <= 1000 && h.near(wait, min(want.wait, 1000)), "want to wait for %d ms", want.wait)
		least, most := max(h.clock, want.above+1), max(h.clock+int64(h.slack), want.below+1)
		h.check(c.ticket == want.ticket || want.ticket == 0 && c.ticket >= least && c.ticket <= most,
			"want the ticket %d, or one from %d to %d", want.ticket, least, most)
		h.model.enter(c)
		h.waiting = append(without(h.waiting), c)
	}
	h.compare(ctx, want)
}

// release releases keys of c, and makes it leave the lines with its id, if it has one.
func (h *queueHistory) release(ctx context.Context, c *contender, keys []string, id string) {
	args := []any{c.token, len(keys)}
	if id != "" {
		args = append(args, id)
		h.waiting = slices.DeleteFunc(h.waiting, func(other *contender) bool { return other.id == id })
	}
	if len(keys) > 0 {
		h.holding = slices.DeleteFunc(h.holding, func(other *contender) bool { return other == c })
	}
	reply := h.eval(ctx, "release", withLines(keys, c.keys...), args...)
	want := h.model.release(keys, c.token, c.keys, id)
	h.check(fmt.Sprint(reply) == fmt.Sprint(want.reply), "want %v", want.reply)
	h.compare(ctx, want)
}

func (h *queueHistory) pass(ctx context.Context, d int64) {
	h.past = append(h.past, fmt.Sprintf("%d µs pass", d))
	h.step(ctx, d, func(redis.Pipeliner) {})
	h.compare(ctx, verdict{})
}

// newcomer returns somebody who was not there before, and who has an id if it waits.
func (h *queueHistory) newcomer(waits bool) *contender {
	h.named++
	keys := slices.Clone(queueKeys)
	h.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	c := &contender{keys: keys[:1+h.random.IntN(3)], token: fmt.Sprintf("t%d", h.named)}
	c.ttl = pick(h.random, []int64{600, 999, 1000, 30_200, 30_200, 30_200})
	if waits {
		c.id = fmt.Sprintf("box%d/%d", h.random.IntN(3), h.named)
	}
	return c
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
	if h.on.memory != nil {
		passing, jumps = []int64{1, 1_000_000, 1_000_000, 2_000_000, 3_000_001}, []int64{-1_000_000, -1_000_001, -5_000_000}
	} else {
		h.slack = 1.2 * slack
	}
	for h.count < steps && h.problem == "" {
		alive := h.alive()
		switch what := h.random.IntN(100); {
		case what < 18 && len(alive) < 8:
			h.try(ctx, h.newcomer(true), 0)
		case what < 26:
			h.try(ctx, h.newcomer(false), 0)
		case what < 38:
			h.pass(ctx, pick(h.random, passing))
		case what < 40:
			h.pass(ctx, pick(h.random, jumps))
		case what < 65 && len(alive) > 0:
			c := pick(h.random, alive)
			h.try(ctx, c, c.ticket*int64(min(h.random.IntN(4), 1))) // 0: as if the reply had been lost
		case what < 70 && len(h.waiting) > 0:
			c := pick(h.random, h.waiting)
			h.release(ctx, c, nil, c.id)
		case what < 73 && len(alive) > 0 && h.deadly:
			c := pick(h.random, alive)
			c.dead = true
			h.past = append(h.past, c.id+" dies")
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
	case what < 79:
		thief := h.newcomer(false)
		thief.keys = []string{key}
		h.past = append(h.past, thief.token+" steals "+key)
		h.holding = append(h.holding, thief)
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.Set(ctx, key, thief.token, time.Minute) })
		h.model.locks[key] = modelLock{thief.token, time.Minute.Microseconds()}
		h.compare(ctx, verdict{})
	case what < 83: // a replay
		h.try(ctx, c, c.ticket)
	case what < 89: // more keys, one of which may be its own
		more := h.newcomer(h.random.IntN(2) == 0)
		more.token = c.token
		if !slices.Contains(more.keys, key) && h.random.IntN(3) > 0 {
			more.keys = append(more.keys, key)
		}
		h.try(ctx, more, 0)
	case what < 92:
		h.release(ctx, c, c.keys, c.id)
	default:
		h.release(ctx, c, c.keys, "")
	}
}

// deadInLine reports whether somebody who is dead still counts as live.
func (h *queueHistory) deadInLine() bool {
	return slices.ContainsFunc(h.waiting, func(c *contender) bool {
		return c.dead && slices.ContainsFunc(c.keys, func(key string) bool {
			return slices.ContainsFunc(h.model.lines[key], func(p modelPlace) bool { return p.id == c.id && h.model.live(p) })
		})
	})
}

// finish makes every holder release, and every waiter try again as it would: when it is woken, and each second. No
// second may pass for want of a message, but only where the dead are in the way.
func (h *queueHistory) finish(ctx context.Context) {
	second := func() {
		h.pass(ctx, 800_000)
		for _, c := range h.alive() {
			h.try(ctx, c, c.ticket)
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
			h.release(ctx, c, c.keys, "")
		case len(h.alive()) == 0:
			h.pass(ctx, 4_000_000)
			h.check(h.size.Val() == 0, "%d keys are left", h.size.Val())
			return
		default:
			h.check(h.deadInLine(), "nobody wakes %d waiters: %+v", len(h.alive()), h.model)
			second()
		}
	}
}
