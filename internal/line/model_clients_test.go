package line_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// This file says what the clients do about replies and messages, by the rules of session.go and beat.go. In particular, it
// says when a waiter tries again. No waiter of the model tries at regular intervals. Clients of the model know what came
// before what, and need no clocks for that.

// box is an inbox: the waiters of one client, which beats for them.
type box struct {
	name  string
	hears bool // somebody listens to it
	open  bool // its calls say so
	cut   bool // its client has lost the subscription, and will have another one
	dead  bool // its client does nothing any more
	fails bool // waiters that have left may still stand in line
	beats int
	life  int64               // in s
	left  map[string]bool     // ids of waiters that have left and that a message or a beat has named
	lost  bool                // the messages of the present step do not arrive
	inbox map[string][]string // in the present step: what has arrived, by number
}

// standing returns the waiters that the session of a box knows.
func (h *queueHistory) standing(b *box) (all []*contender) {
	for _, c := range h.waiting {
		if c.box == b && c.stands {
			all = append(all, c)
		}
	}
	return all
}

// lines returns the keys in whose lines the session of a box stands.
func (h *queueHistory) lines(b *box) []string {
	keys := map[string]bool{}
	for _, c := range h.standing(b) {
		for _, key := range c.keys {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// made notes that marks of a box were made in these lines, or were missing. Entries that were written before may be missing
// as well: those of all waiters but the one whose try has just made the marks.
func (h *queueHistory) made(b *box, keys []string, by *contender) {
	if h.deaf == "made" {
		return
	}
	for _, c := range h.standing(b) {
		c.called = c.called || c != by && slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(c.keys, key) })
	}
}

// keysAt returns those of its keys that have these indices, from 1 on.
func (c *contender) keysAt(indices []int64) (keys []string) {
	for _, i := range indices {
		keys = append(keys, c.keys[i-1])
	}
	return keys
}

// join notes a refusal that the client of c has read.
func (h *queueHistory) join(c *contender, ticket, wait int64, made []int64) {
	c.stands, c.ticket = true, ticket
	h.made(c.box, c.keysAt(made), c)
	if c.due = 0; wait > 0 {
		c.due = h.elapsed + wait*1000
	}
}

// quit notes that c waits no more.
func (h *queueHistory) quit(c *contender) {
	h.waiting = without(h.waiting, c)
	c.stands, c.called, c.due = false, false, 0
}

// comeBack makes all waiters of a box try, because messages may have been lost.
func (h *queueHistory) comeBack(b *box) {
	for _, c := range h.standing(b) {
		c.called = true
	}
}

// hear takes the messages of a step.
func (h *queueHistory) hear(b *box) {
	for _, number := range slices.Sorted(maps.Keys(b.inbox)) {
		at := slices.IndexFunc(h.waiting, func(c *contender) bool { return c.box == b && c.number() == number })
		for _, words := range b.inbox[number] {
			if b.dead || b.lost {
				continue
			}
			kind, rest, _ := strings.Cut(words, " ")
			first, lines, _ := strings.Cut(rest, " ")
			value, _ := strconv.ParseInt(first, 10, 64)
			switch {
			case at < 0: // it has left
				b.left[b.name+"/"+number] = true
				if kind == "marked" { // in lines that nobody knows any more
					h.comeBack(b)
				}
			case kind == "marked":
				var made []int64
				for digits := range strings.FieldsSeq(lines) {
					i, _ := strconv.ParseInt(digits, 10, 64)
					made = append(made, i)
				}
				h.made(b, h.waiting[at].keysAt(made), h.waiting[at])
			case h.deaf == "messages" && kind != "granted":
			case kind == "after":
				h.remind(h.waiting[at], value+1)
			case kind == "granted":
				c := h.waiting[at]
				h.quit(c)
				h.holding = append(h.holding, c)
				at = -1
			default:
				h.waiting[at].called = true
			}
		}
	}
	if b.lost { // its subscription was interrupted
		b.lost = false
		h.comeBack(b)
	}
	b.inbox = map[string][]string{}
}

// remind makes a waiter try in so many ms.
func (h *queueHistory) remind(c *contender, ms int64) {
	if due := h.elapsed + ms*1000; c.due == 0 || due < c.due {
		c.due = due
	}
}

// heedBeat takes the reply to a beat in the lines of these keys.
func (h *queueHistory) heedBeat(b *box, keys []string, missing []int64, firsts []any) {
	for _, i := range missing {
		h.made(b, []string{keys[i-1]}, nil)
	}
	for i := 0; i+2 < len(firsts); i += 3 {
		number, lines, ms := fmt.Sprint(firsts[i]), firsts[i+1].(int64), firsts[i+2].(int64)
		at := slices.IndexFunc(h.waiting, func(c *contender) bool { return c.box == b && c.number() == number })
		switch {
		case h.deaf == "beats":
		case at < 0:
			b.left[b.name+"/"+number] = true
		case !h.waiting[at].stands || int(lines) < len(h.waiting[at].keys):
		case ms > 0:
			h.remind(h.waiting[at], ms+1)
		default:
			h.waiting[at].called = true
		}
	}
}

// called returns the waiters that are to try now.
func (h *queueHistory) called() []*contender {
	return slices.DeleteFunc(h.alive(), func(c *contender) bool {
		return !c.called && (c.due == 0 || c.due > h.elapsed)
	})
}

// nextDue returns in how many µs the first waiter is to try that waits for a time; 0 for none.
func (h *queueHistory) nextDue() (next int64) {
	for _, c := range h.alive() {
		if c.due > h.elapsed && (next == 0 || c.due-h.elapsed < next) {
			next = c.due - h.elapsed
		}
	}
	return next
}

// alive returns those waiters whose clients do something.
func (h *queueHistory) alive() []*contender {
	alive := slices.DeleteFunc(slices.Clone(h.waiting), func(c *contender) bool { return c.box.dead })
	slices.SortFunc(alive, func(p, q *contender) int { return cmp.Compare(p.id, q.id) })
	return alive
}
