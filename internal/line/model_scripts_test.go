package line_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// This file says what the scripts do, in the simplest way, by their headers: see internal/script/line.lua.

// contender is somebody who obtains keys. One with a box waits in line when it is refused.
type contender struct {
	keys  []string
	token string
	ttl   int64 // in ms
	fence string
	box   *box
	id    string
	wants int // how many keys it may be handed: all or none

	// What its client knows; see model_clients_test.go.

	ticket int64 // 0: none yet
	stands bool  // a refusal was read, so the session knows the waiter
	called bool  // it is to try now
	due    int64 // by when it is to try, in µs of the history; 0 for no time
	unread bool  // it was granted its keys, and does not know
}

// entry returns what stands in the lines for the contender.
func (c *contender) entry() string {
	return fmt.Sprintf("%s %d %d %d %s%s", c.id, c.wants, c.ttl, len(c.fence), c.fence, c.token)
}

func (c *contender) number() string { return c.id[strings.Index(c.id, "/")+1:] }

// queueModel is what Redis should hold.
type queueModel struct {
	now    int64 // by the server's clock, in µs
	locks  map[string]modelLock
	lines  map[string]*modelLine // by lock key
	fences map[string]int64
	loose  int64 // how far the clock may be off, in ms
	vague  bool  // what a script does depends on less time than it may take
}

type modelLock struct {
	token string
	left  int64 // in µs; endless for a key without expiry
}

const endless = math.MaxInt64 / 2

type modelLine struct {
	entries []modelEntry
	marks   map[string]modelMark // by the name of the box
	left    int64                // in µs
}

type modelEntry struct {
	*contender
	ticket int64
}

type modelMark struct {
	deadline, life int64 // in ms
	open           bool
}

// pass moves the clock. Where it jumps back, nothing lasts longer.
func (m *queueModel) pass(d int64) {
	m.now += d
	for _, key := range queueKeys {
		lock := m.locks[key]
		if lock.left < endless {
			lock.left -= max(d, 0)
		}
		if lock.left > 0 {
			m.locks[key] = lock
		} else {
			delete(m.locks, key)
		}
		if line := m.lines[key]; line != nil {
			if line.left -= max(d, 0); line.left <= 0 {
				delete(m.lines, key)
			}
		}
	}
}

// isLess compares times in ms. The model cannot tell if they are too near each other.
func (m *queueModel) isLess(a, b, loose int64) bool {
	if d := max(a-b, b-a); d < loose {
		m.vague = true
	}
	return a < b
}

// left returns how many ms a key has left; -1 without expiry, -2 if it is free.
func (m *queueModel) left(key string) int64 {
	lock, taken := m.locks[key]
	switch {
	case !taken:
		return -2
	case lock.left == endless:
		return -1
	}
	return lock.left / 1000
}

// add puts an entry into a line, or moves it.
func (m *queueModel) add(key string, c *contender, ticket int64) {
	line := m.lines[key]
	if line == nil {
		line = &modelLine{marks: map[string]modelMark{}}
		m.lines[key] = line
	}
	line.entries = slices.DeleteFunc(line.entries, func(e modelEntry) bool { return e.contender == c })
	line.entries = append(line.entries, modelEntry{c, ticket})
	slices.SortFunc(line.entries, func(p, q modelEntry) int {
		return cmp.Or(cmp.Compare(p.ticket, q.ticket), cmp.Compare(p.entry(), q.entry()))
	})
}

// mark renews the mark of a box in a line that exists, and reports whether it has made the mark.
func (m *queueModel) mark(key string, b *box, life int64) (made bool) {
	_, had := m.lines[key].marks[b.name]
	m.lines[key].marks[b.name] = modelMark{m.now/1000 + life*1000, life * 1000, b.open}
	return !had
}

// hasEnded reports whether the mark of a box in a line has ended more than 5 s ago.
func (m *queueModel) hasEnded(key, box string) bool {
	return m.isLess(m.lines[key].marks[box].deadline-m.now/1000, -5000, m.loose)
}

// step is mark for a line that there may not be, and lasts long enough afterwards.
func (m *queueModel) step(key string, b *box, life int64) (made bool) {
	line := m.lines[key]
	if line == nil {
		line = &modelLine{marks: map[string]modelMark{}}
		m.lines[key] = line
	}
	before := line.marks[b.name]
	if before == (modelMark{}) || m.hasEnded(key, b.name) {
		if b.fails {
			line.entries = slices.DeleteFunc(line.entries, func(e modelEntry) bool { return e.box == b })
		}
		for name := range line.marks {
			if name == b.name || m.hasEnded(key, name) {
				delete(line.marks, name)
			}
		}
		if len(line.entries)+len(line.marks) == 0 { // the line is made anew
			line.left = 0
		}
	}
	made = m.mark(key, b, life)
	if made || before.life < life*1000 || m.isLess(line.left/1000, life*4000/3, m.loose) {
		m.prolong(key, life)
	}
	return made
}

// prolong makes a line last as long as it must for an inbox with that life.
func (m *queueModel) prolong(key string, life int64) {
	m.lines[key].left = max(m.lines[key].left, life*7000/3*1000)
}

// remove takes the entry of a contender out of a line; with its mark, if it was dead.
func (m *queueModel) remove(key string, c *contender, dead bool) (removed bool) {
	line := m.lines[key]
	if line == nil {
		return false
	}
	had := len(line.entries)
	line.entries = slices.DeleteFunc(line.entries, func(e modelEntry) bool { return e.contender == c })
	removed = len(line.entries) < had
	if dead {
		delete(line.marks, c.box.name)
	}
	if len(line.entries)+len(line.marks) == 0 {
		delete(m.lines, key)
	}
	return removed
}

// view is what a script knows of a waiter, by the mark in a line.
type view struct {
	line       string
	left, life int64 // in ms
	open       bool
}

// modelRun is a script while it runs.
type modelRun struct {
	*queueModel
	reply  []any
	told   map[string][]string // by id: the words of the messages to it, after the number
	handed []*contender
	spares bool // waiters of an inbox that is gone stay if there is nobody else

	known    map[*contender]view
	read     string          // the line that was read last,
	marks    map[string]view // and its marks
	gone     map[*box]bool   // nobody listens there any more
	removed  map[string]bool // by line and inbox: a mark that was live, and was removed with a waiter that another line calls dead
	messaged map[*contender]bool
}

func (m *queueModel) start() *modelRun {
	return &modelRun{
		queueModel: m, told: map[string][]string{}, known: map[*contender]view{}, gone: map[*box]bool{},
		removed: map[string]bool{}, messaged: map[*contender]bool{},
	}
}

// look returns what the script knows of a waiter in a line.
func (r *modelRun) look(key string, c *contender) view {
	v, known := r.known[c]
	if known && (v.line == key || r.isLive(v)) {
		return v
	}
	if r.read != key {
		r.read, r.marks = key, map[string]view{}
	}
	if v, known = r.marks[c.box.name]; !known {
		v = r.markIn(key, c.box)
		r.marks[c.box.name] = v
		r.vague = r.vague || r.removed[key+c.box.name] // the script may have read the mark before
	}
	r.known[c] = v
	return v
}

func (r *modelRun) markIn(key string, b *box) view {
	mark := r.lines[key].marks[b.name]
	return view{key, mark.deadline - r.now/1000, mark.life, mark.open}
}

// isLive is exact where the clock is: marks have their deadlines in whole ms.
func (r *modelRun) isLive(v view) bool {
	return !r.isLess(v.left, 0, r.loose) && !r.isLess(v.life+1000, v.left, r.loose)
}

// first returns the first waiter of a line that is live and whose inbox is not gone. It removes those before it, with the
// marks of their inboxes.
func (r *modelRun) first(key string) (first *contender, removed bool) {
	var passed []*contender
	for at := 0; r.lines[key] != nil && at < len(r.lines[key].entries); {
		c := r.lines[key].entries[at].contender
		v := r.look(key, c)
		unheard := v.open && r.gone[c.box]
		switch live := r.isLive(v); {
		case live && !unheard:
			for _, before := range passed {
				r.removed[key+before.box.name] = true
				r.remove(key, before, true)
			}
			return c, removed || len(passed) > 0
		case live && r.spares:
			passed = append(passed, c)
			at++
		default:
			if here := r.markIn(key, c.box); here != v && r.isLive(here) {
				r.removed[key+c.box.name] = true
			}
			r.remove(key, c, true)
			removed = true
		}
	}
	if len(passed) == 0 {
		delete(r.lines, key)
	}
	return nil, removed
}

func (r *modelRun) isLate(c *contender) bool {
	return r.isLess(3*r.known[c].left, r.known[c].life, 3*r.loose)
}

// tell notes a message to a waiter, one at most, and reports whether somebody may have received it.
func (r *modelRun) tell(c *contender, words string) bool {
	if !r.messaged[c] {
		r.messaged[c] = true
		r.told[c.id] = append(r.told[c.id], words)
		r.gone[c.box] = r.gone[c.box] || r.known[c].open && !c.box.hears
	}
	return !r.known[c].open || c.box.hears
}

// warn tells the first waiter of a line that its key is taken for a short time.
func (r *modelRun) warn(key string, ttl int64) {
	if c, _ := r.first(key); c != nil && 3*ttl < r.known[c].life {
		r.tell(c, fmt.Sprint("after ", ttl))
	}
}

// announce says that a call of this waiter has made marks in these of its lines.
func (r *modelRun) announce(c *contender, made []int64) {
	r.told[c.id] = append(r.told[c.id], strings.TrimSuffix("marked "+strings.Trim(fmt.Sprint(made), "[]"), " "))
}

// refusal is what a waiter is told by an obtain that was refused.
type refusal struct {
	wait   int64   // in ms; 0 if only a message or a beat can say when
	ticket int64   // that it keeps; 0 if it gets a new one,
	above  int64   // higher than this one
	made   []int64 // in which of its lines, from 1 on
}

// obtain is a try with this ticket. If it is refused, enter gives the waiter its position.
func (m *queueModel) obtain(c *contender, known int64) (r *modelRun, refused *refusal) {
	r = m.start()
	queued, held := false, []any{int64(0)}
	var blocked []string
	for i, key := range c.keys {
		lock, taken := m.locks[key]
		queued = queued || m.lines[key] != nil
		switch {
		case taken && lock.token == c.token:
			held = append(held, int64(i+1))
		case taken:
			blocked = append(blocked, key)
		}
	}
	no := &refusal{ticket: known}
	if line := m.lines[c.keys[0]]; known == 0 && c.box != nil && line != nil { // its first try was not answered
		for _, e := range line.entries {
			if e.contender == c {
				no.ticket = e.ticket
			}
		}
	}
	isBehind := func(key string) bool {
		for {
			first, removed := r.first(key)
			if first == nil || first == c {
				return false
			}
			if removed && !r.tell(first, "") {
				continue
			}
			at := slices.IndexFunc(m.lines[key].entries, func(e modelEntry) bool { return e.contender == first })
			other := m.lines[key].entries[at].ticket
			return no.ticket == 0 || other < no.ticket || other == no.ticket && first.entry() < c.entry()
		}
	}
	behind := false
	switch {
	case len(blocked) > 0 && c.box == nil:
		return r.refuse(c, nil)
	case len(blocked) > 0: // the line of one of them says enough
		behind = isBehind(blocked[0])
		for _, key := range []string{blocked[0], blocked[len(blocked)-1]} {
			if !behind {
				no.wait = max(no.wait, m.left(key)+1)
			}
		}
		return r.refuse(c, no)
	case len(held) == 1 && queued:
		for _, key := range c.keys {
			behind = behind || isBehind(key)
		}
		if behind {
			return r.refuse(c, no)
		}
	}
	for _, key := range c.keys {
		if r.remove(key, c, false); queued {
			r.warn(key, c.ttl)
		}
		m.locks[key] = modelLock{c.token, max(m.locks[key].left, c.ttl*1000)}
		if m.locks[key].left == endless {
			m.locks[key] = modelLock{c.token, c.ttl * 1000}
		}
	}
	if r.reply = held; len(held) == 1 && c.fence == "" {
		r.reply = []any{int64(1)}
	}
	return r, nil
}

func (r *modelRun) refuse(c *contender, no *refusal) (*modelRun, *refusal) {
	if r.reply = []any{int64(0)}; c.box == nil {
		return r, &refusal{}
	}
	for _, key := range c.keys {
		if line := r.lines[key]; line != nil {
			for _, e := range line.entries {
				no.above = max(no.above, e.ticket)
			}
		}
	}
	return r, no
}

// enter is the rest of a refused obtain: c stands in its lines with that ticket.
func (r *modelRun) enter(c *contender, ticket int64, no *refusal, life int64) {
	for i, key := range c.keys {
		if r.step(key, c.box, life) {
			no.made = append(no.made, int64(i+1))
		}
		r.add(key, c, ticket)
	}
	if no.made != nil {
		r.announce(c, no.made)
	}
}

// release is what the script does for a holder with a fence key, "" for none, and for a waiter that leaves, or steps back
// with a ticket.
func (m *queueModel) release(
	keys []string, token, fence string, lines []string, leaver *contender, ticket, life int64,
) *modelRun {
	r := m.start()
	r.spares = true
	deleted, stirred, queued := map[string]bool{}, map[string]bool{}, false
	for i, key := range keys {
		switch lock, taken := m.locks[key]; {
		case taken && lock.token == token:
			delete(m.locks, key)
			deleted[key] = true
		case taken:
			r.reply = append(r.reply, int64(i+1))
		default:
			r.reply = append(r.reply, int64(-i-1))
		}
	}
	if r.reply == nil {
		r.reply = []any{int64(0)}
	}
	for _, key := range lines {
		queued = queued || m.lines[key] != nil
	}
	if !queued && ticket == 0 {
		return r
	}
	var made []int64
	for i, key := range lines {
		line := m.lines[key]
		stirred[key] = leaver == nil || deleted[key] ||
			line != nil && len(line.entries) > 0 && line.entries[0].contender == leaver
		if ticket > 0 {
			if r.step(key, leaver.box, life) {
				made = append(made, int64(i+1))
			}
			r.add(key, leaver, ticket)
		} else if leaver != nil {
			r.remove(key, leaver, false)
		}
	}
	if made != nil {
		r.announce(leaver, made)
	}
	for pending := lines; len(pending) > 0; {
		var order []*contender
		stands := map[*contender][]string{}
		for _, key := range pending {
			c, removed := r.first(key)
			if c == nil || ticket > 0 && c == leaver || !stirred[key] && !removed {
				continue
			}
			if stirred[key] = true; stands[c] == nil {
				order = append(order, c)
			}
			stands[c] = append(stands[c], key)
		}
		pending = nil
		for _, c := range order {
			at := stands[c]
			switch {
			case len(lines) == len(keys) && r.mayHave(c, at, deleted, fence):
				for _, key := range at {
					m.locks[key] = modelLock{c.token, c.ttl * 1000}
				}
				r.tell(c, "granted")
				r.handed = append(r.handed, c)
				for _, key := range at {
					r.remove(key, c, false)
					r.warn(key, c.ttl)
				}
			case r.gone[c.box] && r.known[c].open || !r.tell(c, ""):
				pending = append(pending, at...)
			}
		}
	}
	return r
}

// mayHave reports whether a release hands the keys over to the first waiter of their lines.
func (r *modelRun) mayHave(c *contender, keys []string, deleted map[string]bool, fence string) bool {
	return !r.messaged[c] && c.wants == len(keys) && (c.fence == "" || c.fence == fence) &&
		!slices.ContainsFunc(keys, func(key string) bool { return !deleted[key] }) &&
		r.known[c].open && c.box.hears && !r.isLate(c)
}

// beaten is the reply to a beat.
type beaten struct {
	silent  int64   // -1 for none
	missing []int64 // indices from 1
	firsts  []*modelFirst
}

type modelFirst struct {
	*contender
	lines, ms int64
}

// beat renews the marks of a box in the lines of these keys. left are waiters of the box that have left.
func (m *queueModel) beat(b *box, keys []string, life int64, prolong bool, left map[string]bool) (*modelRun, beaten) {
	r, reply := m.start(), beaten{silent: -1}
	for i, key := range keys {
		line := m.lines[key]
		if line != nil && line.marks[b.name] != (modelMark{}) && r.hasEnded(key, b.name) {
			delete(line.marks, b.name)
			if len(line.entries)+len(line.marks) == 0 {
				delete(m.lines, key)
				line = nil
			}
		}
		if line == nil || line.marks[b.name] == (modelMark{}) {
			reply.missing = append(reply.missing, int64(i+1))
			continue
		}
		r.mark(key, b, life)
		if prolong {
			r.prolong(key, life)
		}
		r.read, r.marks = "", nil // what an earlier line said of the waiters there stays known
		first, removed := r.first(key)
		for first != nil && (left[first.id] || removed && first.box != b && !r.tell(first, "")) {
			if left[first.id] {
				r.remove(key, first, false)
				removed = true
			}
			var more bool
			first, more = r.first(key)
			removed = removed || more
		}
		switch {
		case first == nil:
		case first.box != b:
			if ends := r.known[first].left; reply.silent < 0 || ends < reply.silent {
				reply.silent = ends
			}
		default:
			at := slices.IndexFunc(reply.firsts, func(f *modelFirst) bool { return f.contender == first })
			if at < 0 {
				at = len(reply.firsts)
				reply.firsts = append(reply.firsts, &modelFirst{contender: first})
			}
			if ends := m.left(key); ends != -1 && (ends == -2 || r.isLess(3*ends, life*1000, 3*r.loose+6)) {
				reply.firsts[at].lines++
				reply.firsts[at].ms = max(reply.firsts[at].ms, ends)
			}
		}
	}
	return r, reply
}
