package line_test

import (
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

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Random histories of the scripts of the line are played on Redis and on a simple model. Whatever a script replies, tells
// and leaves in Redis must be what the model says. model_scripts_test.go says what the scripts do, and model_clients_test.go
// what the clients do about it. At the end of each history, every waiter must get its keys although none tries unless its
// client has a reason to. model_controls_test.go takes the rules away, one at a time.
var _ = spec.DescribeOnRedis("Random lines", func(on *spec.Redis) {
	It("match a simple model, and lose no waiter", Label(spec.Random), func(ctx SpecContext) {
		judged := 0
		for range spec.Schedules(map[string]int{spec.InMemory: 25, spec.OnServer: 80}[on.Kind]) {
			seed := rand.Uint64()
			if named, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
				seed = named // of a failure, on the in-memory Redis: a real server has a clock of its own
			}
			switch problem, past := playLines(ctx, on, seed, lineScripts(), ""); problem {
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

// lineScripts returns the texts of the scripts that know lines, by name.
func lineScripts() map[string]string {
	texts := map[string]string{}
	for _, name := range []string{"obtain", "release", "beat", "inspect"} {
		texts[name] = spec.Source(name)
	}
	return texts
}

// playLines plays one history. It returns the first difference from the model, or "", and what was done. deaf says what the
// clients do not heed; "" if they do all.
func playLines(
	ctx context.Context, on *spec.Redis, seed uint64, scripts map[string]string, deaf string,
) (problem string, past []string) {
	if err := on.Client.FlushDB(ctx).Err(); err != nil {
		return err.Error(), nil
	}
	listener := on.Client.Subscribe(ctx, spec.Inboxes+"last")
	defer listener.Close()
	if _, err := listener.Receive(ctx); err != nil {
		return err.Error(), nil
	}
	h := newQueueHistory(on, listener, rand.New(rand.NewPCG(seed, 1)), scripts)
	h.deaf = deaf
	h.run(ctx, 80)
	return h.problem, h.past
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

// queueHistory does random things to the locks and lines of Redis and to a model.
type queueHistory struct {
	on       *spec.Redis
	listener *redis.PubSub
	random   *rand.Rand
	scripts  map[string]string
	deaf     string // what the clients do not heed

	deadly, lossy, cutting bool // clients die; Redis forgets; subscriptions are lost

	model   *queueModel
	count   int // of steps
	named   int // contenders
	boxes   []*box
	waiting []*contender // those who believe that they stand in line, or that have died there
	holding []*contender
	elapsed int64 // in µs, by a clock that does not jump
	past    []string
	problem string // the first difference

	slack   float64 // how far the clock may be off, in µs
	clock   int64   // the server's at the last step, in µs
	settled int64   // on a real server: up to when the time that passed by itself is taken back
	found   map[string]foundKey
	fences  map[string]*redis.StringCmd
	size    *redis.IntCmd
}

// foundKey is what Redis holds for a lock key.
type foundKey struct {
	value      *redis.StringCmd
	left, last *redis.DurationCmd // of the key, and of its line
	line       *redis.ZSliceCmd
}

func newQueueHistory(on *spec.Redis, listener *redis.PubSub, random *rand.Rand, scripts map[string]string) *queueHistory {
	h := &queueHistory{
		on: on, listener: listener, random: random, scripts: scripts,
		deadly: random.IntN(2) == 0, lossy: random.IntN(2) == 0, cutting: random.IntN(3) == 0,
		model: &queueModel{
			locks: map[string]modelLock{}, lines: map[string]*modelLine{}, fences: map[string]int64{}, now: 1.9e15,
		},
	}
	if on.Memory == nil {
		h.slack, h.model.loose = 1.2*slack, 1.2*slack/1000
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
	h.elapsed += max(d, 0)
	all := func(pipe redis.Pipeliner) error {
		do(pipe)
		h.found = map[string]foundKey{}
		for _, key := range queueKeys {
			line := queueLines[key]
			h.found[key] = foundKey{
				value: pipe.Get(ctx, key), left: pipe.PTTL(ctx, key),
				line: pipe.ZRangeWithScores(ctx, line, 0, -1), last: pipe.PTTL(ctx, line),
			}
		}
		h.fences = map[string]*redis.StringCmd{"f1": pipe.Get(ctx, "f1"), "f2": pipe.Get(ctx, "f2")}
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
	h.check(err == nil || err == redis.Nil, "error %v", err)
}

// eval runs a script. In memory, a µs passes before each, because no two scripts of a real server run at one time.
func (h *queueHistory) eval(ctx context.Context, script string, keys []string, args ...any) any {
	var reply *redis.Cmd
	tick := int64(0)
	if h.on.Memory != nil {
		tick = 1
	}
	h.step(ctx, tick, func(pipe redis.Pipeliner) { reply = pipe.Eval(ctx, h.scripts[script], keys, args...) })
	h.past = append(h.past, fmt.Sprint(script, " ", keys, " ", args, ": ", reply.Val()))
	h.check(reply.Err() == nil, "%s: %v", script, reply.Err())
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

// compare holds what Redis holds, and whom it has told what, against the model. run is nil after a step without a script.
func (h *queueHistory) compare(ctx context.Context, run *modelRun) {
	h.check(!h.model.vague, unclear)
	if h.problem != "" {
		return
	}
	for _, key := range queueKeys {
		found, lock, line := h.found[key], h.model.locks[key], h.model.lines[key]
		h.check(found.value.Val() == lock.token && h.near(pttl(found.left), h.model.left(key)),
			"%q is %q for %d ms, want %+v", key, found.value.Val(), pttl(found.left), lock)
		members := map[string]float64{}
		if line != nil {
			for _, e := range line.entries {
				members[e.entry()] = float64(e.ticket)
			}
			for name, mark := range line.marks {
				members["~"+name] = h.score(mark)
			}
			lasts := pttl(found.last)
			h.check(h.near(lasts, line.left/1000), "the line of %q lasts %d ms, want %d", key, lasts, line.left/1000)
		}
		h.check(len(found.line.Val()) == len(members), "the line of %q is %v, want %v", key, found.line.Val(), members)
		for _, z := range found.line.Val() {
			member, _ := z.Member.(string)
			score, expected := members[member]
			near := z.Score == score
			if member[0] == '~' { // the last 12 bits have to be right, the time nearly so
				near = math.Mod(-z.Score, 4096) == math.Mod(-score, 4096) && math.Abs(z.Score-score)/4096 <= h.slack/1000
			}
			h.check(expected && near, "the line of %q is %v, want %v", key, found.line.Val(), members)
		}
	}
	h.receive(ctx)
	if run == nil {
		run = h.model.start()
	}
	for _, b := range h.boxes {
		got := map[string][]string{}
		for number, all := range b.inbox {
			for _, words := range all {
				kind, rest, _ := strings.Cut(words, " ")
				switch _, lines, _ := strings.Cut(rest, " "); kind {
				case "granted":
					words = kind
				case "marked":
					words = kind + " " + lines
				}
				got[b.name+"/"+number] = append(got[b.name+"/"+number], words)
			}
		}
		want := maps.Clone(run.told)
		maps.DeleteFunc(want, func(id string, _ []string) bool { return !b.hears || !strings.HasPrefix(id, b.name+"/") })
		h.check(maps.EqualFunc(got, want, slices.Equal[[]string]), "the messages are %q, want %q", got, want)
	}
	for _, c := range run.handed {
		h.minted(c)
	}
	size := len(h.model.locks) + len(h.model.lines) + len(h.model.fences)
	h.check(h.size.Val() == int64(size), "there are %d keys, want %d", h.size.Val(), size)
	for key, counter := range h.fences {
		number, _ := counter.Int64()
		h.check(number == h.model.fences[key], "%q is %d, want %d", key, number, h.model.fences[key])
	}
	for _, b := range h.boxes {
		if b.inbox != nil && h.problem == "" {
			h.hear(b)
		}
	}
}

// pttl returns a ttl in ms as PTTL does. go-redis has -1 and -2 in nanoseconds.
func pttl(ttl *redis.DurationCmd) int64 {
	if ttl.Val() < 0 {
		return int64(ttl.Val())
	}
	return ttl.Val().Milliseconds()
}

// score is the score of a mark, as the server's clock has it.
func (h *queueHistory) score(mark modelMark) float64 {
	score := (h.clock/1000+mark.deadline-h.model.now/1000)*4096 + mark.life/1000*2
	if mark.open {
		score++
	}
	return -float64(score)
}

// receive puts the messages of the step into the boxes.
func (h *queueHistory) receive(ctx context.Context) {
	for h.problem == "" {
		message, err := h.listener.ReceiveMessage(ctx)
		if err != nil {
			h.check(false, "error %v", err)
			return
		}
		name := strings.TrimPrefix(message.Channel, spec.Inboxes)
		if name == "last" {
			h.check(message.Payload == strconv.Itoa(h.count), "the messages of step %s came after step %d", message.Payload, h.count)
			return
		}
		at := slices.IndexFunc(h.boxes, func(b *box) bool { return b.name == name })
		number, words, _ := strings.Cut(message.Payload, " ")
		h.past = append(h.past, "   to "+name+": "+message.Payload)
		h.boxes[at].inbox[number] = append(h.boxes[at].inbox[number], words)
	}
}

// minted checks what a message says of a hand-off.
func (h *queueHistory) minted(c *contender) {
	if !c.box.hears || h.problem != "" {
		return
	}
	for _, words := range c.box.inbox[c.number()] {
		if fields := strings.Fields(words); len(fields) == 3 && fields[0] == "granted" {
			at, err := strconv.ParseInt(fields[1], 10, 64)
			h.check(err == nil && math.Abs(float64(at-h.clock)) <= h.slack,
				"%s is granted its keys at %s, and it is %d", c.id, fields[1], h.clock)
			fence, err := strconv.ParseInt(fields[2], 10, 64)
			h.check(err == nil, "%s gets the fencing token %q", c.id, fields[2])
			h.fenced(c, fence)
		}
	}
}

// fenced checks the fencing token of a grant.
func (h *queueHistory) fenced(c *contender, fence int64) {
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

func pick[E any](random *rand.Rand, from []E) E { return from[random.IntN(len(from))] }

// one reports true once in so many times.
func (h *queueHistory) one(in int) bool { return h.random.IntN(in) == 0 }

func flagged(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// state is what the calls of a box say of it.
func (b *box) state() (sum int) {
	if b.open {
		sum = 1
	}
	if b.fails {
		sum += 2
	}
	return sum
}

// life is for how many seconds a call of a client keeps its waiters live. It changes seldom.
func (h *queueHistory) life(b *box) int64 {
	if h.one(10) {
		return 9 - b.life
	}
	return b.life
}

// try obtains for c, which believes to have this ticket. If lost is set, nobody reads the reply.
func (h *queueHistory) try(ctx context.Context, c *contender, ticket int64, lost bool) {
	keys, args := slices.Clone(c.keys), []any{c.token, "", c.ttl, len(c.keys), "0"}
	if c.fence != "" {
		keys, args[4] = append(keys, c.fence), "1"
	}
	life := int64(0)
	if c.box != nil {
		life = h.life(c.box)
		args = append(args, "0", c.entry(), ticket, c.box.state(), life)
	}
	c.called, c.due, c.unread = false, 0, false
	reply := h.eval(ctx, "obtain", withLines(keys, c.keys...), args...)
	want, no := h.model.obtain(c, ticket)
	h.check(!h.model.vague, unclear)
	list, _ := reply.(spec.List)
	var wait int64
	switch {
	case no == nil && c.fence != "" && len(list) > 0:
		fence, _ := list[0].(int64)
		h.fenced(c, fence)
		list[0] = int64(0)
		h.check(fmt.Sprint(reply) == fmt.Sprint(want.reply), "want %v", want.reply)
	case no == nil && len(want.reply) == 1 || no != nil && c.box == nil:
		h.check(reply == want.reply[0], "want %v", want.reply)
	case no == nil:
		h.check(fmt.Sprint(reply) == fmt.Sprint(want.reply), "want %v", want.reply)
	case len(list) != 5 || list[0] != int64(-1):
		h.check(false, "want a position in line")
	default:
		wait, _ = list[1].(int64)
		h.check(h.near(wait, no.wait) && (wait == 0) == (no.wait == 0), "is to wait for %d ms, want %d", wait, no.wait)
		given, _ := list[2].(int64)
		least, most := max(h.clock, no.above+1), max(h.clock+int64(h.slack), no.above+1)
		h.check(given == no.ticket || no.ticket == 0 && given >= least && given <= most,
			"want the ticket %d, or one from %d to %d", no.ticket, least, most)
		at, _ := list[3].(int64)
		h.check(math.Abs(float64(at-h.clock)) <= h.slack, "it is %d and not %d", at, h.clock)
		want.enter(c, given, no, life)
		h.check(!h.model.vague, unclear)
		h.check(fmt.Sprint(list[4]) == fmt.Sprint(no.made), "want marks to be made in %v", no.made)
		if ticket = given; !slices.Contains(h.waiting, c) {
			h.waiting = append(h.waiting, c)
		}
	}
	h.compare(ctx, want)
	switch {
	case h.problem != "":
	case lost: // the client tries again
		c.called, c.unread = true, no == nil
		h.past = append(h.past, "   the reply is lost")
		if !slices.Contains(h.waiting, c) {
			h.waiting = append(h.waiting, c)
		}
	case no == nil:
		if c.box != nil {
			h.quit(c)
		}
		h.holding = append(without(h.holding, c), c)
	case c.box != nil:
		h.join(c, ticket, wait, no.made)
	}
}

// release releases keys of c, and makes it leave the lines if that is asked for.
func (h *queueHistory) release(ctx context.Context, c *contender, keys []string, leaves bool) {
	all := withLines(keys, c.keys...)
	args, fence := []any{c.token, len(keys)}, c.fence
	var leaver *contender
	if leaves {
		leaver, fence = c, ""
		args = append(args, c.entry())
		h.quit(c)
	} else if c.fence != "" {
		all = withLines(append(slices.Clone(keys), c.fence), c.keys...)
		args = append(args, "", "1")
	}
	if len(keys) > 0 {
		h.holding = without(h.holding, c)
	}
	reply := h.eval(ctx, "release", all, args...)
	want := h.model.release(keys, c.token, fence, c.keys, leaver, 0, 0)
	h.releases(ctx, reply, want)
}

// stepBack makes c release its keys and stand in line with that ticket.
func (h *queueHistory) stepBack(ctx context.Context, c *contender, keys []string, ticket int64) {
	life := h.life(c.box)
	args := []any{c.token, len(keys), c.entry(), "0", ticket, life, c.box.state()}
	if h.holding = without(h.holding, c); !slices.Contains(h.waiting, c) {
		h.waiting = append(h.waiting, c)
	}
	c.stands, c.ticket, c.unread = true, ticket, false
	reply := h.eval(ctx, "release", withLines(keys, c.keys...), args...)
	want := h.model.release(keys, c.token, "", c.keys, c, ticket, life)
	h.releases(ctx, reply, want)
	if !c.box.hears && len(want.told[c.id]) > 0 { // nobody knows of the marks that it has made, so this takes the net
		h.comeBack(c.box)
	}
}

func (h *queueHistory) releases(ctx context.Context, reply any, want *modelRun) {
	h.check(!h.model.vague, unclear)
	if list, is := reply.(spec.List); is {
		h.check(fmt.Sprint(list) == fmt.Sprint(want.reply), "want %v", want.reply)
	} else {
		h.check(reply == want.reply[0], "want %v", want.reply)
	}
	h.compare(ctx, want)
}

// beat is a beat of a box, in the lines of these keys.
func (h *queueHistory) beat(ctx context.Context, b *box, keys []string) {
	life, prolong := h.life(b), b.beats%3 == 0
	b.beats++
	args := []any{b.name, life, b.state(), flagged(prolong)}
	left := maps.Clone(b.left)
	for _, id := range slices.Sorted(maps.Keys(left)) {
		args = append(args, id)
	}
	reply, _ := h.eval(ctx, "beat", withLines(keys, keys...), args...).(spec.List)
	run, want := h.model.beat(b, keys, life, prolong, left)
	h.check(!h.model.vague, unclear)
	if len(reply) != 5 {
		h.check(false, "want five values")
		return
	}
	at, _ := reply[0].(int64)
	h.check(math.Abs(float64(at-h.clock)) <= h.slack, "it is %d and not %d", at, h.clock)
	listeners := int64(0)
	if b.hears {
		listeners = 1
	}
	h.check(reply[1] == listeners, "want %d listeners", listeners)
	silent, _ := reply[2].(int64)
	h.check(h.near(silent, want.silent) && (silent < 0) == (want.silent < 0), "want %d ms until a mark ends", want.silent)
	h.check(fmt.Sprint(reply[3]) == fmt.Sprint(want.missing), "want marks to be missing in %v", want.missing)
	firsts, _ := reply[4].(spec.List)
	h.check(len(firsts) == 3*len(want.firsts), "want %d to be first", len(want.firsts))
	for i, f := range want.firsts {
		if h.problem == "" {
			ms, _ := firsts[3*i+2].(int64)
			h.check(firsts[3*i] == f.number() && firsts[3*i+1] == f.lines && h.near(ms, f.ms), "want %s first in %d lines in %d ms",
				f.id, f.lines, f.ms)
		}
	}
	h.compare(ctx, run)
	if h.problem == "" && !b.dead {
		for id := range left {
			delete(b.left, id)
		}
		h.heedBeat(b, keys, want.missing, firsts)
	}
}

func (h *queueHistory) pass(ctx context.Context, d int64) {
	h.past = append(h.past, fmt.Sprintf("%d µs pass", d))
	h.step(ctx, d, func(redis.Pipeliner) {})
	h.compare(ctx, nil)
}

// inspect counts the waiters of all lines, and looks at them.
func (h *queueHistory) inspect(ctx context.Context) {
	const fields = 6 // of a key
	all := slices.Clone(queueKeys)
	for _, key := range queueKeys {
		all = append(all, queueLines[key], keyname.NoteOf(key))
	}
	reply, _ := h.eval(ctx, "inspect", all, len(queueKeys), "0", "", 100).(spec.List)
	if h.check(len(reply) == fields*len(queueKeys), "want %d values", fields*len(queueKeys)); h.problem != "" {
		return
	}
	for i, key := range queueKeys {
		run, live, since := h.model.start(), int64(0), int64(0)
		shown, _ := reply[fields*i+4].(spec.List)
		for at := 0; h.model.lines[key] != nil && at < len(h.model.lines[key].entries); at++ {
			e := h.model.lines[key].entries[at]
			if run.isLive(run.look(key, e.contender)) {
				if live++; live == 1 {
					since = e.ticket
				}
				at := int(live-1) * 4
				h.check(h.model.vague || len(shown) > at && shown[at+1] == e.ticket, "want waiter %d of %q shown", live, key)
			}
		}
		if h.check(!h.model.vague, unclear); h.problem == "" {
			h.check(reply[fields*i+2] == live && reply[fields*i+3] == since, "want %d waiters for %q, since %d", live, key, since)
			h.check(len(shown) == int(live)*4, "want %d waiters shown for %q", live, key)
		}
	}
	h.compare(ctx, nil)
}

// newcomer returns somebody who was not there before, and who has a box if it waits.
func (h *queueHistory) newcomer(ctx context.Context, waits bool) *contender {
	h.named++
	keys := slices.Clone(queueKeys[:3+h.random.IntN(3)])
	h.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	c := &contender{keys: keys[:1+h.random.IntN(3)], token: fmt.Sprintf("t%d", h.named)}
	c.ttl = pick(h.random, []int64{600, 999, 1000, 30_200, 30_200, 30_200})
	c.fence = pick(h.random, []string{"", "", "", "f1", "f1", "f2"})
	if waits {
		c.box = h.someBox(ctx)
		c.id = fmt.Sprintf("%s/%d", c.box.name, h.named)
		if c.wants = len(c.keys); h.one(6) {
			c.wants = 0
		}
	}
	return c
}

// living returns the boxes whose clients do something.
func (h *queueHistory) living() []*box {
	return slices.DeleteFunc(slices.Clone(h.boxes), func(b *box) bool { return b.dead })
}

// someBox returns a box, of three living ones at a time.
func (h *queueHistory) someBox(ctx context.Context) *box {
	living := h.living()
	if len(living) < 3 {
		b := &box{
			name: fmt.Sprint("box", len(h.boxes)), left: map[string]bool{}, inbox: map[string][]string{},
			hears: !h.one(10), life: pick(h.random, []int64{3, 3, 3, 6}), fails: h.one(2),
		}
		b.open = b.hears && !h.one(8)
		h.boxes = append(h.boxes, b)
		if living = append(living, b); b.hears {
			h.listen(ctx, b, true)
		}
	}
	return pick(h.random, living)
}

// listen begins or ends the subscription of a box.
func (h *queueHistory) listen(ctx context.Context, b *box, hears bool) {
	change := h.listener.Unsubscribe
	if b.hears = hears; hears {
		change = h.listener.Subscribe
	}
	h.past = append(h.past, fmt.Sprintf("%s hears: %v", b.name, hears))
	h.check(change(ctx, spec.Inboxes+b.name) == nil, "cannot subscribe")
	for h.problem == "" {
		switch message, err := h.listener.Receive(ctx); message.(type) {
		case *redis.Subscription:
			return
		default:
			h.check(false, "%v, %v in the place of a confirmation", message, err)
		}
	}
}

// run does so many random steps and lets everybody finish.
func (h *queueHistory) run(ctx context.Context, steps int) {
	for i := 0; i < steps && h.problem == ""; i++ {
		h.play(ctx)
	}
	h.finish(ctx)
}

// play does something.
func (h *queueHistory) play(ctx context.Context) {
	// The ages that come of these times are far from 1, 2 and 3 s where the clock cannot be told.
	passing, jumps := []int64{800_000, 800_000, 1_600_000, 2_400_000, 3_200_000}, []int64{-800_000, -1_600_000, -5_600_000}
	if h.on.Memory != nil {
		passing, jumps = []int64{1, 1_000_000, 1_000_000, 2_000_000, 3_000_001}, []int64{-1_000_000, -1_000_001, -5_000_000}
	}
	alive, called, living := h.alive(), h.called(), h.living()
	switch what := h.random.IntN(100); {
	case what < 16 && len(alive) < 9:
		c := h.newcomer(ctx, true)
		h.try(ctx, c, 0, c.box.hears && h.one(8))
	case what < 20:
		h.try(ctx, h.newcomer(ctx, false), 0, false)
	case what < 28:
		h.pass(ctx, pick(h.random, passing))
	case what < 30:
		h.pass(ctx, pick(h.random, jumps))
	case what < 31 && h.on.Memory != nil && len(living) > 1:
		h.isolate(ctx, pick(h.random, living))
	case what < 45 && len(called) > 0:
		c := pick(h.random, called)
		h.try(ctx, c, c.ticket, c.box.hears && h.one(8))
	case what < 49 && len(alive) > 0: // a try is never wrong
		c := pick(h.random, alive)
		h.try(ctx, c, c.ticket*int64(min(h.random.IntN(4), 1)), false)
	case what < 62 && len(living) > 0:
		b := pick(h.random, living)
		if keys := h.lines(b); len(keys) > 0 {
			h.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			h.beat(ctx, b, keys)
			if h.one(4) && h.problem == "" { // twice, at the same time
				h.beat(ctx, b, keys)
			}
		}
	case what < 66 && len(alive) > 0:
		h.leave(ctx, pick(h.random, alive))
	case what < 69 && len(h.waiting) > 0 && !pick(h.random, h.waiting).unread:
		h.inspect(ctx)
	case what < 73 && h.deadly:
		h.die(ctx)
	case what < 78 && h.lossy:
		h.lose(ctx)
	case what < 81 && h.cutting && len(living) > 0:
		h.cut(ctx, pick(h.random, living))
	case len(h.holding) > 0:
		h.hold(ctx, pick(h.random, h.holding), h.random.IntN(100))
	}
}

// leave makes c leave the line. Its call may be lost, and then it stands there like a ghost.
func (h *queueHistory) leave(ctx context.Context, c *contender) {
	switch {
	case h.one(3):
		h.past = append(h.past, c.id+" leaves, and nobody knows")
		h.quit(c)
	case c.wants > 0: // a hand-off may have come first
		h.release(ctx, c, c.keys, true)
	default:
		h.release(ctx, c, nil, true)
	}
}

// isolate keeps the beats of a box from Redis for so long that its marks end long before, while the others beat.
func (h *queueHistory) isolate(ctx context.Context, b *box) {
	h.past = append(h.past, b.name+" is cut off")
	for range 4 {
		h.pass(ctx, 2_500_000)
		for _, other := range h.living() {
			if keys := h.lines(other); other != b && len(keys) > 0 && h.problem == "" {
				h.beat(ctx, other, keys)
			}
		}
	}
}

// die ends a client, or sends a beat of one that was on its way when the client ended.
func (h *queueHistory) die(ctx context.Context) {
	dead := slices.DeleteFunc(slices.Clone(h.boxes), func(b *box) bool { return !b.dead })
	living := h.living()
	switch {
	case len(dead) > 0 && h.one(2):
		b := pick(h.random, dead)
		if keys := h.lines(b); len(keys) > 0 {
			h.beat(ctx, b, keys)
		}
	case len(living) > 0:
		b := pick(h.random, living)
		b.dead = true
		h.past = append(h.past, b.name+" dies")
		if b.hears && !h.one(3) { // otherwise its connection stays
			h.listen(ctx, b, false)
		}
	}
}

// lose makes Redis forget something.
func (h *queueHistory) lose(ctx context.Context) {
	key := pick(h.random, queueKeys)
	line := h.model.lines[key]
	switch what := h.random.IntN(8); {
	case what == 0:
		h.past = append(h.past, "flushall")
		h.model.locks, h.model.lines, h.model.fences = map[string]modelLock{}, map[string]*modelLine{}, map[string]int64{}
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.FlushDB(ctx) })
	case line == nil:
		return
	case what < 4 && len(line.marks) > 0:
		name := pick(h.random, slices.Sorted(maps.Keys(line.marks)))
		h.past = append(h.past, "the mark of "+name+" is lost for "+key)
		if delete(line.marks, name); len(line.entries)+len(line.marks) == 0 {
			delete(h.model.lines, key)
		}
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.ZRem(ctx, queueLines[key], "~"+name) })
	default:
		h.past = append(h.past, "the line of "+key+" is lost")
		delete(h.model.lines, key)
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.Del(ctx, queueLines[key]) })
	}
	h.compare(ctx, nil)
}

// cut takes the subscription of a box away, or gives it a new one. Or it loses the messages of the next step, before the
// client has a new one.
func (h *queueHistory) cut(ctx context.Context, b *box) {
	switch {
	case b.cut:
		b.cut = false
		h.listen(ctx, b, true)
		h.comeBack(b)
	case b.hears && h.one(2):
		b.lost = true
		h.past = append(h.past, b.name+" loses the next messages")
	case b.hears:
		b.cut = true
		h.listen(ctx, b, false)
	}
}

// hold is what happens to a holder, and to what it holds.
func (h *queueHistory) hold(ctx context.Context, c *contender, what int) {
	switch key := pick(h.random, c.keys); {
	case what < 4:
		h.past = append(h.past, "del "+key)
		delete(h.model.locks, key)
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.Del(ctx, key) })
		h.compare(ctx, nil)
	case what < 9:
		thief := h.newcomer(ctx, false)
		thief.keys = []string{key}
		h.past = append(h.past, thief.token+" steals "+key)
		h.holding = append(h.holding, thief)
		ttl := pick(h.random, []time.Duration{0, time.Minute})
		h.step(ctx, 0, func(pipe redis.Pipeliner) { pipe.Set(ctx, key, thief.token, ttl) })
		if h.model.locks[key] = (modelLock{thief.token, ttl.Microseconds()}); ttl == 0 {
			h.model.locks[key] = modelLock{thief.token, endless}
		}
		h.compare(ctx, nil)
	case what < 16 && (c.box == nil || !c.box.dead): // a replay
		h.try(ctx, c, c.ticket, false)
	case what < 26: // more keys, one of which may be its own
		more := h.newcomer(ctx, h.one(2))
		more.token, more.wants = c.token, 0
		if !slices.Contains(more.keys, key) && h.random.IntN(3) > 0 {
			more.keys = append(more.keys, key)
		}
		h.try(ctx, more, 0, false)
	case what < 34 && c.box != nil:
		h.release(ctx, c, c.keys, true)
	case what < 50 && c.box != nil && !c.box.dead:
		ticket := max(c.ticket, 1)
		if others := h.alive(); len(others) > 0 && h.one(2) { // of a round at several places, it may have any ticket
			ticket = max(pick(h.random, others).ticket, 1)
		}
		h.stepBack(ctx, c, c.keys, ticket)
	default:
		h.release(ctx, c, c.keys, false)
	}
}

// isObstructed reports whether something is in the way that only time takes away, or that only a beat finds out: the dead,
// who still count as live or still hold keys, and clients that hear nothing.
func (h *queueHistory) isObstructed() bool {
	for _, key := range queueKeys {
		token := h.model.locks[key].token
		if token != "" && !slices.ContainsFunc(h.holding, func(c *contender) bool { return c.token == token }) {
			return true
		}
		if line := h.model.lines[key]; line != nil && slices.ContainsFunc(line.entries, func(e modelEntry) bool {
			return e.box.dead || !slices.Contains(h.waiting, e.contender)
		}) {
			return true
		}
	}
	return slices.ContainsFunc(h.alive(), func(c *contender) bool { return !c.box.hears || c.unread })
}

// round lets the time between two beats pass, and all clients beat.
func (h *queueHistory) round(ctx context.Context) {
	h.pass(ctx, 800_000)
	for _, b := range h.living() {
		if keys := h.lines(b); len(keys) > 0 && h.problem == "" {
			h.beat(ctx, b, keys)
		}
	}
}

// finish makes every holder release its keys, all clients beat, and each waiter try that has a reason to. It allows some
// rounds of beats, which make up for what Redis has lost. After that, messages must be enough where nobody has died.
func (h *queueHistory) finish(ctx context.Context) {
	for _, b := range h.living() {
		if b.cut && h.problem == "" {
			h.cut(ctx, b)
		}
	}
	const settling, most = 4, 120 // 30.2 s of a lock that nobody releases take 38 rounds
	for rounds := 0; h.problem == ""; {
		called, alive := h.called(), h.alive()
		h.check(h.count < 1000, "too many steps")
		switch n := len(called) + len(h.holding); {
		case n > 0 && h.random.IntN(n) < len(called):
			c := pick(h.random, called)
			h.try(ctx, c, c.ticket, false)
		case n > 0:
			c := pick(h.random, h.holding)
			h.release(ctx, c, c.keys, false)
		case len(alive) == 0:
			h.pass(ctx, 60_000_000)
			h.check(h.size.Val() == int64(len(h.model.fences)), "%d keys are left", h.size.Val())
			return
		default:
			h.check(rounds < settling || h.nextDue() > 0 || h.isObstructed(), "nobody calls %+v", *alive[0])
			h.check(rounds < most, "%+v is stuck", *alive[0])
			h.round(ctx)
			rounds++
		}
	}
}
