package script_test

import (
	"context"
	"fmt"
	"maps"
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

// Random histories of locks with shared keys and permits are played on Redis. shared_checker_test.go checks each reply, each
// message and all that is stored against what callers were promised. shared_controls_test.go takes the rules of the scripts
// away, one at a time.
var _ = spec.DescribeOnRedis("Random shared keys and permits", func(on *spec.Redis) {
	It("keep what callers were promised", Label(spec.Random), func(ctx SpecContext) {
		total, counts := 0, map[string]int{}
		schedules := spec.Schedules(map[string]int{spec.InMemory: 4, spec.OnServer: 2}[on.Kind]) // with the race detector, none there
		for range schedules {
			seed := rand.Uint64()
			if named, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
				seed = named // of a failure, on the in-memory Redis: a real server has a clock of its own
			}
			h := playShared(ctx, on, seed, sharedScripts())
			if h.problem != "" {
				Fail(fmt.Sprintf("seed %d: %s\nafter %s", seed, h.problem, strings.Join(h.past, "\n      ")))
			}
			total += h.steps
			for name, n := range h.counts {
				counts[name] += n
			}
		}
		AddReportEntry("steps", fmt.Sprintf("%d: %v", total, counts), ReportEntryVisibilityFailureOrVerbose)
		Expect(total).To(BeNumerically(">=", schedules))
	})
})

// sharedScripts returns the texts of the scripts that know shared keys or lines, by name.
func sharedScripts() map[string]string {
	texts := map[string]string{}
	for _, name := range []string{"obtain", "release", "refresh", "pttl", "beat"} {
		texts[name] = spec.Source(name)
	}
	return texts
}

// sharedHistory does what clients do, at random.
type sharedHistory struct {
	promised

	on       *spec.Redis
	listener *redis.PubSub
	random   *rand.Rand
	scripts  map[string]*redis.Script
	operator bool // deletes keys by hand
	deadly   bool // inboxes die or pause

	boxes  []*sharedBox
	known  map[string]*sharedWaiter // by id, all there ever were
	old    []*sharedHold            // that have ended, for calls that are executed late
	before map[*sharedWaiter]bool   // who was blocked before the last script
	named  int                      // tokens, waiters and inboxes
	clock  time.Time                // in memory

	steps  int
	counts map[string]int // of what was done
	past   []string
}

// playShared plays one history.
func playShared(ctx context.Context, on *spec.Redis, seed uint64, scripts map[string]string) *sharedHistory {
	h := &sharedHistory{
		on: on, random: rand.New(rand.NewPCG(seed, 1)), scripts: map[string]*redis.Script{}, known: map[string]*sharedWaiter{},
		clock: time.UnixMilli(1_900_000_000_000), counts: map[string]int{},
	}
	h.operator, h.deadly = h.one(2), h.one(2)
	for name, text := range scripts {
		h.scripts[name] = redis.NewScript(text)
	}
	if on.Memory != nil {
		on.Memory.SetTime(h.clock)
	}
	h.check(on.Client.FlushDB(ctx).Err() == nil, "FLUSHDB fails")
	h.listener = on.Client.Subscribe(ctx, spec.Inboxes+"last")
	defer h.listener.Close()
	if _, err := h.listener.Receive(ctx); err != nil {
		h.check(false, "SUBSCRIBE fails: %v", err)
	}
	const most = 300
	for h.steps < most && h.problem == "" {
		h.step(ctx)
	}
	h.finish(ctx)
	if h.problem != "" {
		h.describe(ctx)
	}
	return h
}

func (h *sharedHistory) now() time.Time {
	if h.on.Memory != nil {
		return h.clock
	}
	return time.Now()
}

// one reports true once in so many times.
func (h *sharedHistory) one(in int) bool { return h.random.IntN(in) == 0 }

func (h *sharedHistory) note(format string, args ...any) {
	if len(h.past) > 80 {
		h.past = slices.Clone(h.past[40:])
	}
	h.past = append(h.past, fmt.Sprintf(format, args...))
}

// pass lets time pass. Inboxes beat meanwhile.
func (h *sharedHistory) pass(ctx context.Context, d time.Duration) {
	end := h.now().Add(d)
	for h.problem == "" {
		next := end
		for _, b := range h.boxes {
			if at := later(b.next, b.paused); !b.dead && at.Before(next) {
				next = at
			}
		}
		if wait := next.Sub(h.now()); wait > 0 {
			if h.on.Memory == nil {
				time.Sleep(wait)
			} else {
				h.clock = next
				h.on.Memory.SetTime(h.clock)
			}
		}
		for _, b := range h.boxes {
			if !b.dead && !h.now().Before(later(b.next, b.paused)) {
				h.beat(ctx, b)
			}
		}
		if !h.now().Before(end) {
			return
		}
	}
}

// run runs a script.
func (h *sharedHistory) run(ctx context.Context, script string, keys []string, args ...any) any {
	if h.on.Memory != nil { // no two scripts of a real server run at one time
		h.clock = h.clock.Add(time.Microsecond)
		h.on.Memory.SetTime(h.clock)
	}
	h.steps++
	h.before = h.blocked(h.now())
	h.sent = h.now()
	reply, err := h.scripts[script].Run(ctx, h.on.Client, keys, args...).Result()
	h.got = h.now()
	h.note("%d %s %v %v: %v", h.sent.UnixMicro()%1e9, script, keys, args, reply)
	h.check(err == nil, "%s: %v", script, err)
	return reply
}

func nameOf(i int) string { return "k" + strconv.Itoa(i) }

// names returns the keys of a lock and their houses, its lines, and what says to a script how many keys these are.
func (lock *sharedHold) names() (keys, houses, lines []string, modes string) {
	shared := ""
	for i, limit := range lock.limits {
		if limit == unwanted {
			continue
		}
		keys, lines = append(keys, nameOf(i)), append(lines, keyname.LineOf(nameOf(i)))
		if limit != 1 {
			houses = append(houses, keyname.HouseOf(nameOf(i)))
			shared += fmt.Sprintf(" %d=%d", len(keys), limit)
		}
	}
	return keys, houses, lines, strconv.Itoa(len(keys)) + shared
}

// at returns which of all keys is the one at that position of a lock, from 1 on.
func (lock *sharedHold) at(position int64) int {
	for i, limit := range lock.limits {
		if limit != unwanted {
			position--
		}
		if position == 0 {
			return i
		}
	}
	return 0
}

// valueOf returns what an exclusive key holds with that metadata.
func (lock *sharedHold) valueOf(metadata string) string {
	return strings.TrimSpace(lock.token + " " + metadata)
}

func (lock *sharedHold) isShared() bool {
	return slices.ContainsFunc(lock.limits[:], func(limit int) bool { return limit != unwanted && limit != 1 })
}

// entry is what stands in line for a waiter.
func (w *sharedWaiter) entry() string {
	keys, _, _, _ := w.hold.names()
	wants := strconv.Itoa(len(keys))
	if w.hold.isShared() {
		wants = "00"
	}
	return fmt.Sprintf("%s %s %d 0 %s", w.id(), wants, w.hold.ttl.Milliseconds(), w.hold.valueOf(w.hold.given))
}

// newLock returns a lock that nobody has yet.
func (h *sharedHistory) newLock() *sharedHold {
	h.named++
	lock := &sharedHold{token: fmt.Sprintf("token%d", h.named), ttl: time.Duration(5+h.random.IntN(60)) * time.Millisecond}
	if h.one(8) {
		lock.ttl = time.Duration(200+h.random.IntN(1500)) * time.Millisecond
	}
	if h.one(3) {
		lock.given = "host " + lock.token
	}
	lock.metadata = lock.given
	for i := range lock.limits {
		lock.limits[i] = unwanted
	}
	for range 1 + h.random.IntN(sharedKeys) {
		lock.limits[h.random.IntN(sharedKeys)] = []int{1, 0, 0, 2, 2, 3}[h.random.IntN(6)]
	}
	return lock
}

// newWaiter returns a waiter that does not stand in line yet.
func (h *sharedHistory) newWaiter(ctx context.Context) *sharedWaiter {
	living := slices.DeleteFunc(slices.Clone(h.boxes), func(b *sharedBox) bool { return b.dead })
	if len(living) < 2 {
		h.named++
		b := &sharedBox{
			name: fmt.Sprintf("box%d", h.named), open: !h.one(4), next: h.now().Add(sharedInterval), ghosts: map[string]bool{},
		}
		h.boxes, living = append(h.boxes, b), append(living, b)
		h.subscribe(ctx, b, true)
	}
	h.named++
	w := &sharedWaiter{hold: h.newLock(), box: pick(h.random, living), number: h.named}
	h.known[w.id()] = w
	return w
}

func pick[E any](random *rand.Rand, from []E) E { return from[random.IntN(len(from))] }

// subscribe makes messages for an inbox arrive, or no longer.
func (h *sharedHistory) subscribe(ctx context.Context, b *sharedBox, on bool) {
	err := h.listener.Unsubscribe(ctx, spec.Inboxes+b.name)
	if on {
		err = h.listener.Subscribe(ctx, spec.Inboxes+b.name)
	}
	_, _ = h.listener.Receive(ctx) // its confirmation
	if on && err == nil {
		_, err = h.listener.Receive(ctx)
	}
	h.check(err == nil, "SUBSCRIBE fails: %v", err)
}

// state is what the calls of an inbox say of it: its subscription, and that some may have left.
func (b *sharedBox) state() int {
	if b.open {
		return 3
	}
	return 2
}

// obtain sends an obtain, for a waiter if w is not nil, and returns the reply.
func (h *sharedHistory) obtain(ctx context.Context, lock *sharedHold, w *sharedWaiter) any {
	keys, houses, lines, modes := lock.names()
	args := []any{lock.token, lock.given, lock.ttl.Milliseconds(), modes, "0"}
	if w != nil {
		args = append(args, "0", w.entry(), w.ticket, w.box.state(), int(sharedLife/time.Second))
	}
	return h.run(ctx, "obtain", slices.Concat(keys, houses, lines), args...)
}

// isGrant reports whether a reply of obtain grants the keys, or else gives a position in line.
func isGrant(reply any) (granted bool, position []any) {
	parts, _ := reply.([]any)
	if len(parts) == 5 && parts[0] == int64(-1) {
		return false, parts
	}
	return reply == any(int64(1)) || len(parts) > 0, nil
}

// try obtains a lock. A caller never reads a lost reply.
func (h *sharedHistory) try(ctx context.Context, what string, lock *sharedHold, w *sharedWaiter, lost bool) {
	h.counts[what]++
	reply := h.obtain(ctx, lock, w)
	granted, position := isGrant(reply)
	h.check(granted || w == nil || position != nil, "obtain replies %v to a waiter", reply)
	switch {
	case h.problem != "":
		return
	case granted:
		h.counts["granted"]++
		h.granted(what, lock, w, !lost)
		if w != nil && !lost {
			lock.from = w
			h.waiters = slices.DeleteFunc(h.waiters, func(v *sharedWaiter) bool { return v == w })
		}
	default:
		h.counts["refused"]++
		h.refused(lock, w)
	}
	if position != nil {
		h.stand(w, position, lost)
	}
	if lost && w != nil { // its client tries again, and its entries may be gone
		w.called, w.stands = !w.left, false
	}
	h.look(ctx)
}

// stand notes a position in line.
func (h *sharedHistory) stand(w *sharedWaiter, position []any, lost bool) {
	wait, _ := position[1].(int64)
	ticket, _ := position[2].(int64)
	h.check(w.ticket == 0 || w.ticket == ticket, "%s has the ticket %d and gets %d", w.id(), w.ticket, ticket)
	made := map[int]bool{}
	list, _ := position[4].([]any)
	for _, entry := range list {
		index, _ := entry.(int64)
		made[w.hold.at(index)] = true
	}
	for i, limit := range w.hold.limits {
		if limit != unwanted {
			h.remarked(w.box, i, made[i], w)
		}
	}
	if !slices.Contains(h.waiters, w) {
		h.waiters = append(h.waiters, w)
	}
	if w.place = ticket; lost {
		return
	}
	w.ticket, w.stands, w.called, w.excused, w.due = ticket, !w.left, false, false, time.Time{}
	if wait > 0 {
		w.due = h.got.Add(time.Duration(wait) * time.Millisecond)
	}
}

// release ends a lock. w leaves the lines, if it is not nil. only says that it has no keys, and does nothing but leave.
func (h *sharedHistory) release(ctx context.Context, what string, lock *sharedHold, w *sharedWaiter, only bool) {
	h.counts[what]++
	keys, houses, lines, modes := lock.names()
	if only {
		_, rest, _ := strings.Cut(modes+" ", " ")
		keys, modes = nil, strings.TrimSpace("0 "+rest)
	}
	args := []any{lock.token, modes}
	if w != nil {
		args = append(args, w.entry())
	}
	reply := h.run(ctx, "release", slices.Concat(keys, houses, lines), args...)
	if h.problem != "" {
		return
	}
	if !only {
		h.lost("release", lock, reply)
		h.ends(lock)
		h.remember(lock)
	}
	if w != nil {
		h.leaves(w)
	}
	h.look(ctx)
}

func (h *sharedHistory) leaves(w *sharedWaiter) {
	w.left = true
	h.waiters = slices.DeleteFunc(h.waiters, func(v *sharedWaiter) bool { return v == w })
}

func (h *sharedHistory) remember(lock *sharedHold) {
	if len(h.old) < 30 {
		h.old = append(h.old, lock)
		return
	}
	h.old[h.random.IntN(len(h.old))] = lock
}

// stepBack makes a holder that has stood in line give its keys up, and stand there with its ticket again.
func (h *sharedHistory) stepBack(ctx context.Context, lock *sharedHold, w *sharedWaiter) {
	h.counts["step back"]++
	keys, houses, lines, modes := lock.names()
	args := []any{lock.token, modes, w.entry(), "0", w.ticket, int(sharedLife / time.Second), w.box.state()}
	reply := h.run(ctx, "release", slices.Concat(keys, houses, lines), args...)
	if h.problem != "" {
		return
	}
	h.lost("release", lock, reply)
	h.ends(lock)
	lock.from = nil
	w.stands, w.called, w.excused, w.idle = true, false, true, time.Time{}
	w.due = h.got.Add(time.Duration(h.random.IntN(20)) * time.Millisecond) // when the rest of the round is over
	for i, limit := range lock.limits {
		if limit != unwanted {
			h.remarked(w.box, i, false, w) // a message says where it has made the mark
		}
	}
	h.waiters = append(h.waiters, w)
	h.look(ctx)
}

// refresh refreshes a lock.
func (h *sharedHistory) refresh(ctx context.Context, lock *sharedHold) {
	h.counts["refresh"]++
	keys, houses, _, modes := lock.names()
	ttl, metadata, prolongs := time.Duration(5+h.random.IntN(60))*time.Millisecond, "", h.one(2)
	if !prolongs && h.one(3) {
		h.named++
		metadata = fmt.Sprintf("new %d", h.named)
	}
	args := []any{lock.token, ttl.Milliseconds(), metadata, map[bool]string{true: "1", false: "0"}[prolongs]}
	if len(houses) > 0 {
		args = append(args, "", modes)
	}
	reply := h.run(ctx, "refresh", append(keys, houses...), args...)
	switch {
	case h.problem != "":
		return
	case reply == any(int64(0)):
		h.refreshed(lock, ttl, prolongs)
		if metadata != "" {
			lock.metadata = metadata
		}
		for _, w := range h.waiters {
			w.excused = w.excused || !prolongs
		}
	default:
		h.lost("refresh", lock, reply)
	}
	h.look(ctx)
}

// beat sends a beat.
func (h *sharedHistory) beat(ctx context.Context, b *sharedBox) {
	b.next = h.now().Add(sharedInterval)
	var keys, lines []string
	var at []int
	for i := range sharedKeys {
		if slices.ContainsFunc(h.waiters, func(w *sharedWaiter) bool {
			return w.box == b && !w.left && w.hold.limits[i] != unwanted
		}) {
			keys, lines, at = append(keys, nameOf(i)), append(lines, keyname.LineOf(nameOf(i))), append(at, i)
		}
	}
	if len(keys) == 0 {
		return
	}
	h.counts["beat"]++
	b.beats++
	args := []any{b.name, int(sharedLife / time.Second), b.state(), map[bool]string{true: "1", false: "0"}[b.beats%3 == 0]}
	for _, id := range slices.Sorted(maps.Keys(b.ghosts)) {
		args = append(args, id)
	}
	reply, _ := h.run(ctx, "beat", append(keys, lines...), args...).([]any)
	if h.check(len(reply) == 5, "beat replies %v", reply); h.problem != "" {
		return
	}
	clear(b.ghosts)
	missing, _ := reply[3].([]any)
	for position, i := range at {
		if slices.Contains(missing, any(int64(position+1))) {
			h.mayBeMissing(b, i, nil)
		} else {
			if h.remarked(b, i, false, nil); b.beats%3 == 0 {
				h.prolonged(i)
			}
		}
	}
	firsts, _ := reply[4].([]any)
	for j := 0; j+2 < len(firsts); j += 3 {
		number, _ := firsts[j].(string)
		lines, _ := firsts[j+1].(int64)
		ms, _ := firsts[j+2].(int64)
		w := h.known[b.name+"/"+number]
		if !slices.Contains(h.waiters, w) || w.left {
			b.ghosts[b.name+"/"+number] = true
		} else if wants, _, _, _ := w.hold.names(); int(lines) == len(wants) {
			w.callBy(h.got.Add(time.Duration(ms) * time.Millisecond))
		}
	}
	if silent, _ := reply[2].(int64); silent >= 0 {
		if soon := h.got.Add(time.Duration(silent+1) * time.Millisecond); soon.Before(b.next) {
			b.next = soon
		}
	}
	h.look(ctx)
}

// callBy makes a waiter try no later than that.
func (w *sharedWaiter) callBy(at time.Time) {
	if w.due.IsZero() || at.Before(w.due) {
		w.due = at
	}
}

// hear reads the message for a waiter.
func (h *sharedHistory) hear(b *sharedBox, payload string) {
	number, words, _ := strings.Cut(payload, " ")
	w, fields := h.known[b.name+"/"+number], strings.Fields(words)
	h.check(w != nil, "a message %q to nobody", payload)
	waits := slices.Contains(h.waiters, w) && !w.left
	kind := "turn"
	if len(fields) > 0 {
		kind = fields[0]
	}
	h.counts["told "+kind]++
	switch kind {
	case "turn":
		if w.called = w.called || waits; !waits {
			b.ghosts[w.id()] = true
		}
	case "after":
		ms, _ := strconv.ParseFloat(fields[1], 64)
		w.callBy(h.got.Add(time.Duration(ms+1) * time.Millisecond))
	case "marked":
		for _, field := range fields[2:] {
			position, _ := strconv.ParseInt(field, 10, 64)
			h.prolonged(w.hold.at(position))
			h.mayBeMissing(b, w.hold.at(position), w)
		}
	case "granted":
		h.granted("hand-off", w.hold, w, waits && w.acts(h.now()))
		w.hold.from = w
		h.waiters = slices.DeleteFunc(h.waiters, func(v *sharedWaiter) bool { return v == w })
	default:
		h.check(false, "the message %q", payload)
	}
}

// foundShared is what Redis holds for a key.
type foundShared struct {
	value       *redis.StringCmd
	left, lasts *redis.DurationCmd // of the key, and of its house
	house, line *redis.ZSliceCmd
	stays       *redis.DurationCmd // of the line
}

// look reads the messages of the last step and what Redis holds, and checks both.
func (h *sharedHistory) look(ctx context.Context) {
	if h.problem != "" {
		return
	}
	asked := h.now()
	var found [sharedKeys]foundShared
	_, err := h.on.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range found {
			key := nameOf(i)
			found[i] = foundShared{
				value: pipe.Get(ctx, key), left: pipe.PTTL(ctx, key), lasts: pipe.PTTL(ctx, keyname.HouseOf(key)),
				house: pipe.ZRangeWithScores(ctx, keyname.HouseOf(key), 0, -1),
				line:  pipe.ZRangeWithScores(ctx, keyname.LineOf(key), 0, -1), stays: pipe.PTTL(ctx, keyname.LineOf(key)),
			}
		}
		pipe.Publish(ctx, spec.Inboxes+"last", h.steps)
		return nil
	})
	now := h.now()
	h.check(err == nil || err == redis.Nil, "a look fails: %v", err)
	for h.problem == "" {
		message, err := h.listener.ReceiveMessage(ctx)
		if h.check(err == nil, "no message: %v", err); err != nil {
			return
		}
		name := strings.TrimPrefix(message.Channel, spec.Inboxes)
		if name == "last" {
			h.check(message.Payload == strconv.Itoa(h.steps), "messages of step %s come after step %d", message.Payload, h.steps)
			break
		}
		h.note("   to %s: %s", name, message.Payload)
		if at := slices.IndexFunc(h.boxes, func(b *sharedBox) bool { return b.name == name }); at >= 0 {
			h.hear(h.boxes[at], message.Payload)
		}
	}
	stands := map[string]bool{}
	for i, f := range found {
		h.stored(i, f, asked, now)
		h.inLine(i, f, now, stands)
	}
	h.waiters = slices.DeleteFunc(h.waiters, func(w *sharedWaiter) bool {
		return (w.left || w.box.dead) && !stands[w.id()]
	})
	patience := sharedInterval * 5 / 4
	if h.on.Memory == nil {
		patience += sharedInterval // a busy machine beats late
	}
	h.awake(h.before, now, patience)
}

// describe notes what Redis holds, and what callers were promised.
func (h *sharedHistory) describe(ctx context.Context) {
	now := h.now()
	for i := range sharedKeys {
		key := nameOf(i)
		h.note("%s %q %v, house %v, line %v", key, h.on.Client.Get(ctx, key).Val(), h.on.Client.PTTL(ctx, key).Val(),
			h.on.Client.ZRangeWithScores(ctx, keyname.HouseOf(key), 0, -1).Val(),
			h.on.Client.ZRangeWithScores(ctx, keyname.LineOf(key), 0, -1).Val())
	}
	for _, w := range h.waiters {
		h.note("%s of %v, ticket %d, stands %v, left %v, called %v, due in %v, excused %v", w.id(), w.hold.limits, w.place, w.stands,
			w.left, w.called, w.due.Sub(now), w.excused)
	}
	for _, lock := range h.holds {
		for i, limit := range lock.limits {
			if limit != unwanted {
				h.note("%s k%d=%d: certain %v possible %v", lock.token, i, limit, lock.certain[i].Sub(now), lock.possible[i].Sub(now))
			}
		}
	}
}

// stored checks a key and its house: how long they last, and the metadata of their holders.
func (h *sharedHistory) stored(i int, f foundShared, asked, now time.Time) {
	key, last, certain, shared := nameOf(i), h.remains[i], time.Time{}, time.Time{}
	houses := map[string]bool{}
	for _, z := range f.house.Val() {
		member, _ := z.Member.(string)
		houses[member] = true
	}
	for _, lock := range h.holds {
		last = later(last, lock.possible[i])
		if !lock.certain[i].After(now) {
			continue
		}
		certain = later(certain, lock.certain[i])
		value := lock.valueOf(lock.metadata)
		if lock.limits[i] == 1 {
			h.check(f.value.Val() == value || lock.metadata == unsure, "%s holds %q, want %q", key, f.value.Val(), value)
			continue
		}
		shared = later(shared, lock.certain[i])
		h.check(houses[lock.token], "the house of %s lacks %s", key, lock.token)
		for member := range houses {
			if strings.HasPrefix(member, "meta "+lock.token+" ") {
				h.check(member == "meta "+value || lock.metadata == unsure, "the house of %s has %q, want the metadata %q", key, member, lock.metadata)
			}
		}
		h.check(lock.metadata == "" || lock.metadata == unsure || houses["meta "+value], "the house of %s lacks the metadata of %s", key, lock.token)
		h.check(houses["limit "+lock.token] == (lock.limits[i] > 0), "the limit of %s is wrong in the house of %s", lock.token, key)
	}
	for member := range houses {
		if kind, rest, is := strings.Cut(member, " "); is {
			token, _, _ := strings.Cut(rest, " ")
			h.check(houses[token], "the house of %s has a %s of %s, who is no member", key, kind, token)
		}
	}
	for name, left := range map[string]time.Duration{key: f.left.Val(), "the house of " + key: f.lasts.Val()} {
		h.check(left != -1, "%s has no expiry", name)
		h.check(left <= 0 || !asked.Add(left).After(last.Add(margin)), "%s lasts %v, but its last hold %v", name, left, last.Sub(asked))
	}
	h.check(!certain.After(now) || !now.Add(f.left.Val()).Before(certain.Add(-margin)),
		"%s lasts %v, but a hold %v", key, f.left.Val(), certain.Sub(now))
	h.check(!shared.After(now) || !now.Add(f.lasts.Val()).Before(shared.Add(-margin)),
		"the house of %s lasts %v, but a hold %v", key, f.lasts.Val(), shared.Sub(now))
}

// inLine checks the line of a key, and notes whose entries stand there.
func (h *sharedHistory) inLine(i int, f foundShared, now time.Time, stands map[string]bool) {
	scores, ids := map[string]float64{}, map[string]float64{}
	for _, z := range f.line.Val() {
		member, _ := z.Member.(string)
		if scores[member] = z.Score; member[0] != '~' && member[0] != '=' {
			id, _, _ := strings.Cut(member, " ")
			stands[id], ids[id] = true, z.Score
		}
	}
	h.check(f.stays.Val() != -1, "the line of k%d has no expiry", i)
	for member := range scores {
		if id, is := strings.CutPrefix(member, "="); is {
			h.check(ids[id] != 0, "the line of k%d has %q, whose entry is gone", i, member)
		}
	}
	for id, ticket := range ids {
		w := h.known[id]
		score, is := scores["="+id]
		want := -float64(w.hold.limits[i])
		if want == 0 {
			want = -ticket
		}
		h.check(is == (w.hold.limits[i] != 1), "the line of k%d has an entry of %s, and third member: %v", i, id, is)
		h.check(!is || score == want, "the third member of %s in the line of k%d is %.0f, want %.0f", id, i, score, want)
	}
	for _, w := range h.waiters {
		if w.hold.limits[i] != unwanted && h.isLive(w, i, now) {
			h.check(ids[w.id()] == float64(w.place), "%s stands in the line of k%d with %.0f, want %d", w.id(), i, ids[w.id()], w.place)
		}
	}
}

// step does something.
func (h *sharedHistory) step(ctx context.Context) {
	h.pass(ctx, time.Duration(h.random.IntN(3000))*time.Microsecond) // also those beats that are due
	now := h.now()
	var waiting, calling []*sharedWaiter
	for _, w := range h.waiters {
		if w.acts(now) {
			if waiting = append(waiting, w); w.called || !w.due.IsZero() && !now.Before(w.due) {
				calling = append(calling, w)
			}
		}
	}
	var lock *sharedHold
	if len(h.holds) > 0 {
		lock = pick(h.random, h.holds)
	}
	switch p := h.random.IntN(100); {
	case p < 18:
		h.try(ctx, "obtain", h.newLock(), nil, false)
	case p < 28:
		if len(waiting) < 12 {
			if w := h.newWaiter(ctx); w.acts(now) {
				h.try(ctx, "queue", w.hold, w, h.one(20))
			}
		}
	case p < 54:
		if len(calling) > 0 {
			w := pick(h.random, calling)
			h.try(ctx, "try again", w.hold, w, h.one(20))
		} else if len(waiting) > 0 && h.one(4) { // the net
			w := pick(h.random, waiting)
			h.try(ctx, "try for nothing", w.hold, w, false)
		}
	case p < 68:
		if lock != nil {
			h.release(ctx, "release", lock, nil, false)
		}
	case p < 71:
		if lock != nil && lock.from != nil && !lock.from.box.dead && lock.from.ticket != 0 && !slices.Contains(h.waiters, lock.from) && !lock.from.left {
			h.stepBack(ctx, lock, lock.from)
		}
	case p < 81:
		ended := slices.DeleteFunc(slices.Clone(h.holds), func(o *sharedHold) bool { return o.isHeld(now) })
		if len(ended) > 0 && h.one(2) {
			lock = pick(h.random, ended)
		}
		if lock != nil {
			h.refresh(ctx, lock)
		}
	case p < 83:
		if lock != nil {
			h.counts["pttl"]++
			keys, houses, _, modes := lock.names()
			args := []any{lock.token}
			if len(houses) > 0 {
				args = append(args, modes)
			}
			h.lasts(lock, h.run(ctx, "pttl", append(keys, houses...), args...))
		}
	case p < 87:
		h.late(ctx, lock)
	case p < 89:
		if h.operator {
			h.delete(ctx)
		}
	case p < 92:
		if len(waiting) > 0 {
			w := pick(h.random, waiting)
			switch h.random.IntN(3) {
			case 0:
				h.release(ctx, "leave", w.hold, w, w.hold.certain == [sharedKeys]time.Time{})
			case 1:
				h.release(ctx, "leave", w.hold, w, false)
			default:
				h.counts["leave unheard"]++
				h.note("%s leaves, and nobody knows", w.id())
				w.left, w.stands = true, false
			}
		}
	case p < 93:
		if h.deadly && len(h.boxes) > 0 {
			h.lapse(ctx, pick(h.random, h.boxes))
		}
	case p < 95:
		if h.on.Memory != nil {
			h.pass(ctx, time.Duration(h.random.IntN(1500))*time.Millisecond)
		} else if h.one(4) {
			h.pass(ctx, time.Duration(h.random.IntN(300))*time.Millisecond)
		}
	default:
		h.pass(ctx, time.Duration(h.random.IntN(20))*time.Millisecond)
	}
	for _, lock := range slices.Clone(h.holds) { // of a caller that has died, or of a late call
		if !lock.isHeld(h.now().Add(-20*time.Millisecond)) && h.one(20) {
			h.ends(lock)
			h.remember(lock)
		}
	}
}

// isHeld reports whether a lock may have a key.
func (lock *sharedHold) isHeld(at time.Time) bool {
	return slices.ContainsFunc(lock.possible[:], func(until time.Time) bool { return !until.Before(at) })
}

// late executes a call once more, or late.
func (h *sharedHistory) late(ctx context.Context, lock *sharedHold) {
	if len(h.old) > 0 && h.one(2) {
		lock = pick(h.random, h.old)
	}
	if lock == nil {
		return
	}
	w := lock.from
	switch h.random.IntN(3) {
	case 0:
		if w != nil && !w.box.dead && !slices.Contains(h.waiters, w) && !h.now().Before(w.box.paused) {
			w.left = true // nobody waits for the reply
			h.try(ctx, "late try", lock, w, true)
		}
	case 1:
		if !lock.isHeld(h.now()) && !slices.ContainsFunc(h.waiters, func(w *sharedWaiter) bool { return w.hold == lock }) {
			h.release(ctx, "late release", lock, nil, false)
		}
	default:
		h.try(ctx, "late obtain", lock, nil, true)
	}
}

// delete deletes a key or its house, as an operator may.
func (h *sharedHistory) delete(ctx context.Context) {
	i := h.random.IntN(sharedKeys)
	name := nameOf(i)
	house := h.one(3)
	if house {
		name = keyname.HouseOf(name)
	}
	h.counts["delete"]++
	h.note("%d del %s", h.now().UnixMicro()%1e9, name)
	h.before = nil
	h.sent = h.now()
	h.check(h.on.Client.Del(ctx, name).Err() == nil, "DEL fails")
	h.got = h.now()
	for _, lock := range h.holds {
		if h.remains[i] = later(h.remains[i], lock.possible[i]); !house || lock.limits[i] != 1 {
			lock.certain[i], lock.possible[i] = time.Time{}, time.Time{}
		}
	}
	for _, w := range h.waiters {
		w.excused = true
	}
	h.look(ctx)
}

// lapse ends an inbox, or makes it do nothing for a while.
func (h *sharedHistory) lapse(ctx context.Context, b *sharedBox) {
	switch {
	case b.dead || h.now().Before(b.paused):
	case h.one(2) && h.on.Memory != nil:
		h.counts["pause"]++
		b.paused = h.now().Add(time.Duration(h.random.IntN(12)) * time.Second)
		h.note("%s pauses for %v", b.name, b.paused.Sub(h.now()))
	default:
		h.counts["death"]++
		b.dead = true
		h.note("%s dies", b.name)
		if h.one(2) { // otherwise its connection stays
			h.subscribe(ctx, b, false)
			for _, w := range h.waiters {
				w.stands = w.stands && w.box != b
			}
		}
	}
}

// finish lets each waiter have its keys. None tries unless it has a reason to.
func (h *sharedHistory) finish(ctx context.Context) {
	if h.problem == "" {
		h.note("the end begins")
	}
	begun, most := h.now(), h.steps+1000
	for h.problem == "" {
		now := h.now()
		var waiting, calling []*sharedWaiter
		next := now.Add(sharedInterval)
		for _, w := range h.waiters {
			if w.left || w.box.dead {
				continue
			}
			if waiting = append(waiting, w); !w.acts(now) {
				continue
			}
			if w.called || !w.due.IsZero() && !now.Before(w.due) {
				calling = append(calling, w)
			} else if !w.due.IsZero() && w.due.Before(next) {
				next = w.due
			}
		}
		held := slices.DeleteFunc(slices.Clone(h.holds), func(lock *sharedHold) bool { return !lock.isHeld(now) })
		switch {
		case len(waiting) == 0 && len(held) == 0:
			h.pass(ctx, 5*time.Millisecond)
			h.empty(ctx)
			return
		case len(calling) > 0:
			w := pick(h.random, calling)
			h.try(ctx, "try again", w.hold, w, false)
		case len(held) > 0 && h.one(3):
			h.release(ctx, "release", pick(h.random, held), nil, false)
		default:
			h.pass(ctx, max(next.Sub(now), time.Millisecond))
		}
		stuck := ""
		for _, w := range waiting {
			stuck += fmt.Sprintf(" %s of %v (ticket %d)", w.id(), w.hold.limits, w.ticket)
		}
		h.check(h.steps < most && h.now().Before(begun.Add(time.Minute)), "stuck are%s", stuck)
	}
}

// empty checks that nothing is left behind.
func (h *sharedHistory) empty(ctx context.Context) {
	if h.on.Memory != nil {
		h.pass(ctx, 30*time.Second)
		left := h.on.Keys(ctx)
		h.check(len(left) == 0, "%v are left", left)
		return
	}
	for i := range sharedKeys {
		if wait := h.remains[i].Add(margin).Sub(h.now()); wait > 0 {
			h.pass(ctx, wait)
		}
		n := h.on.Client.Exists(ctx, nameOf(i), keyname.HouseOf(nameOf(i))).Val()
		h.check(n == 0, "k%d or its house is left", i)
	}
}
