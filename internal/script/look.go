package script

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// TTL returns a call that asks for the least remaining ttl of the keys.
func (s *Scripts) TTL(token string, keys Keys) *transport.Call {
	c := &transport.Call{Script: s.pttl, Token: token}
	var n any
	if c.Keys, n = keys.held(); keys.sharing() != nil {
		c.Args = []any{n}
	}
	return c
}

// ReadTTL reads a reply of pttl. It returns 0 if a key is not mine, and the longest Duration if no key has an expiry.
func ReadTTL(reply any) (time.Duration, error) {
	left, ok := reply.(int64)
	switch {
	case !ok:
		return 0, unexpected(reply)
	case left < 0:
		return math.MaxInt64, nil
	}
	return time.Duration(left) * time.Millisecond, nil
}

// Held is what one key holds.
type Held struct {
	Token, Metadata string
	TTL             time.Duration // -1 without expiry
	Gone            bool          // the key does not exist
	Waiters         int
	Since           time.Time // when the first waiter came; zero without waiters
	Line            []Waiter  // the first waiters, as far as they were asked for
	Holders         []Holder  // of a shared key, at most 100; nil for others. The fields above are those of the first one
	Count           int       // how many hold a shared key
	Waits           []string  // for what its holder waits itself, as far as it has noted that
}

// Holder is one of those who hold a shared key.
type Holder struct {
	Token, Metadata string
	TTL             time.Duration
	Limit           int // how many holders it lets the key have; 0 for no limit
}

// Glance says what to tell of the lines of keys.
type Glance struct {
	Shown int   // how many waiters of each line
	Below int64 // look only at lower tickets, and leave out those who can be in no circle, as inspect.lua says; 0 for all

	Note *Note // to leave beside keys that the caller holds; nil for none
}

// Note says what a caller that holds keys waits for.
type Note struct {
	Wants  []string
	Tokens map[string]string // by key that it holds
}

// Inspect returns a call that asks what keys hold. With a Glance, it also asks who waits for them. Then the keys must be in
// the order of LinesFirst.
func (s *Scripts) Inspect(names []string, g *Glance) *transport.Call {
	keys, modes, beside := boxToLook(names, nil)
	c := &transport.Call{Script: s.inspect, Keys: keys, Args: []any{modes}}
	if g == nil {
		return c
	}
	c.Spare = beside
	if g.Shown > 0 {
		c.Args = append(c.Args, "0", "", g.Shown)
		if g.Below > 0 {
			c.Args = append(c.Args, g.Below)
			if g.Note != nil {
				c.Args = append(c.Args, writeWants(g.Note.Wants))
				for _, name := range names[:len(beside)/2] {
					c.Args = append(c.Args, g.Note.Tokens[name])
				}
			}
		}
	}
	return c
}

// InspectOpen is Inspect for the keys of a lock with that token, but only while the guard is open.
func (s *Scripts) InspectOpen(names []string, token string) *transport.Call {
	c := s.Inspect(names, nil)
	c.Args = append(c.Args, flag(s.Guard.IsSet()), token)
	return c
}

// ReadClosure reads the closure that a reply of inspect has in place of what the keys hold.
func ReadClosure(reply any) Closure {
	parts, _ := reply.([]any)
	if !isClosed(parts) {
		return Closure{}
	}
	c, _ := readClosure(parts, 1)
	return c
}

// ReadHeld reads a reply of inspect for these keys.
func ReadHeld(keys []string, reply any) ([]Held, error) {
	values, _ := reply.([]any)
	const fields = 6 // of a key
	if len(values) != fields*len(keys) {
		return nil, unexpected(reply)
	}
	all := make([]Held, len(keys))
	for i := range all {
		h, values := &all[i], values[fields*i:fields*(i+1)]
		value, _ := values[0].(string) // nil for a key of another type
		left, _ := values[1].(int64)
		if h.Gone = left == -2; !h.Gone {
			h.TTL = remaining(left)
		}
		h.Token, h.Metadata = split(value)
		if parts, _ := values[0].([]any); len(parts) > 0 {
			h.readHolders(parts)
		}
		waiters, _ := values[2].(int64)
		h.Waiters = int(waiters)
		if ticket, _ := values[3].(int64); ticket > 0 {
			h.Since = time.UnixMicro(ticket)
		}
		waits, _ := values[5].(string)
		h.Waits = readWants(waits)
		shown, _ := values[4].([]any)
		for ; len(shown) >= 4; shown = shown[4:] {
			entry, _ := shown[0].(string)
			ticket, _ := shown[1].(int64)
			limit, _ := shown[3].(int64)
			h.Line = append(h.Line, readWaiter(keys[i], entry, ticket, shown[2] == any(int64(1)), int(limit)))
		}
	}
	return all, nil
}

// readHolders reads what inspect says of a shared key.
func (h *Held) readHolders(parts []any) {
	count, _ := parts[0].(int64)
	h.Count = int(count)
	for parts = parts[1:]; len(parts) >= 4; parts = parts[4:] {
		var one Holder
		one.Token, _ = parts[0].(string)
		left, _ := parts[1].(int64)
		limit, _ := parts[2].(int64)
		one.TTL, one.Limit = remaining(left), int(limit)
		one.Metadata, _ = parts[3].(string)
		h.Holders = append(h.Holders, one)
	}
	if len(h.Holders) > 0 {
		h.Token, h.Metadata = h.Holders[0].Token, h.Holders[0].Metadata
	}
}

// remaining returns the ttl of a key that exists: -1 without expiry, and never 0, because 0 means that nobody holds the key.
func remaining(ms int64) time.Duration {
	if ms < 0 {
		return -1
	}
	return time.Duration(max(ms, 1)) * time.Millisecond
}

// split splits a stored value into token and metadata. A lock key holds the token, or the token, a space and the metadata. A
// token contains no space, so the first space separates the two.
func split(value string) (token, metadata string) {
	token, metadata, _ = strings.Cut(value, " ")
	return token, metadata
}

// ReadOwned returns which of these keys do not hold the token. ttl is the least ttl of the keys that do; 0 if one of them
// has no expiry.
func ReadOwned(keys []string, held []Held, token string) (l Loss, ttl time.Duration) {
	l.Total, ttl = len(keys), math.MaxInt64
	for i, key := range held {
		shared := len(key.Holders) > 0
		if shared {
			key.TTL = key.Holders[0].TTL
		}
		switch {
		case key.Gone || shared && key.Token != token:
			l.Keys = append(l.Keys, keys[i])
		case key.Token != token:
			l.Keys = append(l.Keys, keys[i])
			l.note(keys[i])
		case key.TTL < 0: // a renewal through another handle may give the key any ttl
			ttl = 0
		default:
			ttl = min(ttl, key.TTL)
		}
	}
	return l, ttl
}

// LimitsOf returns the limits of the first holder of each key, as BoxShared takes them; nil if all keys are exclusive.
func LimitsOf(held []Held) (limits []int) {
	for i, key := range held {
		if len(key.Holders) > 0 {
			if limits == nil {
				limits = slices.Repeat([]int{1}, len(held))
			}
			limits[i] = key.Holders[0].Limit
		}
	}
	return limits
}

// Blocker is what blocks an obtain. Its fields are those of RefusedError in the root.
type Blocker struct {
	Key      string        // "" if nothing blocks it
	Token    string        // of its holder; "" if nobody holds it
	Metadata string        // of its holder
	TTL      time.Duration // of Key; -1 without expiry, 0 if nobody holds it
	Ahead    int           // how many callers wait in line for Key before this one
	Holders  int           // how many others hold Key, if it is shared; else 0
	Closed   time.Duration // for how long a guard refuses every obtain; 0 if that is not the reason
	Waits    []string      // for what its holder waits itself, as far as it has noted that
}

// Blocker returns a call that asks what blocks an obtain of these keys with this token and ticket (0 for none), and the keys
// in the order of the script.
func (s *Scripts) Blocker(keys Keys, token string, ticket int64) (c *transport.Call, names []string) {
	names = slices.SortedStableFunc(slices.Values(keys.Names), LinesFirst)
	looked, modes, beside := boxToLook(names, keys.limitsOf(names))
	return &transport.Call{Script: s.blocker, Keys: looked, Spare: beside, Token: token, Args: []any{modes, ticket}}, names
}

// ReadBlocker reads a reply of blocker for these keys.
func ReadBlocker(keys []string, reply any) Blocker {
	parts, _ := reply.([]any)
	if len(parts) != 6 {
		return Blocker{}
	}
	i, _ := parts[0].(int64)
	value, _ := parts[1].(string)
	left, _ := parts[2].(int64)
	ahead, _ := parts[3].(int64)
	if i < 1 || int(i) > len(keys) {
		return Blocker{}
	}
	holders, _ := parts[4].(int64)
	waits, _ := parts[5].(string)
	b := Blocker{Key: keys[i-1], Ahead: int(ahead), Holders: int(holders), Waits: readWants(waits)}
	if b.Token, b.Metadata = split(value); value != "" || left != 0 { // an empty value has a ttl
		b.TTL = remaining(left)
	}
	return b
}

// Waiter is one waiter in the line of a key.
type Waiter struct {
	Names

	Token    string
	Metadata string
	Process  string
	ID       string // its entry begins with it; orders waiters with one ticket
	Ticket   int64
	Late     bool
	Limit    int // how many holders it would let the key have; 0 for no limit
}

// Waiters returns a call that asks who waits for a key, and the name of the line; nil if the key can have no line.
func (s *Scripts) Waiters(key string) (c *transport.Call, line string) {
	if line = keyname.LineOf(key); line == "" {
		return nil, ""
	}
	return &transport.Call{Script: s.waiters, Keys: []any{line}}, line
}

// ReadWaiters reads a reply of waiters for a key. It returns the live waiters, in the order in which they are served.
func ReadWaiters(key string, reply any) ([]Waiter, error) {
	members, _ := reply.([]any)
	if len(members) == 0 {
		return nil, unexpected(reply)
	}
	now, _ := members[0].(int64)
	marks, limits := map[string]mark{}, map[string]int{} // by inbox; by id
	var waiters []Waiter
	for i := 1; i+1 < len(members); i += 2 {
		member, _ := members[i].(string)
		digits, _ := members[i+1].(string)
		score, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return nil, err
		}
		if inbox, is := strings.CutPrefix(member, "~"); is {
			marks[inbox] = readMark(int64(-score))
			continue
		}
		if id, is := strings.CutPrefix(member, "="); is {
			if limits[id] = int(-score); score < -1_000_000 {
				limits[id] = 0
			}
			continue
		}
		id, _, is := strings.Cut(member, " ")
		if !is {
			continue
		}
		inbox, _, _ := strings.Cut(id, "/")
		limit, shares := limits[id]
		if !shares {
			limit = 1
		}
		if m := marks[inbox]; m.live(now) {
			waiters = append(waiters, readWaiter(key, member, int64(score), m.late(now), limit))
		}
	}
	return waiters, nil
}

// readWaiter reads the entry of a waiter in the line of a key.
func readWaiter(key, entry string, ticket int64, late bool, limit int) Waiter {
	id, rest, _ := strings.Cut(entry, " ")
	inbox, _, _ := strings.Cut(id, "/")
	w := Waiter{ID: id, Process: processOf(inbox), Ticket: ticket, Late: late, Limit: limit}
	names, value := cutEntry(rest)
	w.Names = readNames(names, key)
	w.Token, w.Metadata = split(value)
	return w
}

// processOf returns the part of an inbox's name that names its process. What follows the first dot distinguishes the inboxes
// of the process.
func processOf(inbox string) string {
	process, _, _ := strings.Cut(inbox, ".")
	return process
}

// mark says until when the waiters of an inbox are live. The rules are in line.lua.
type mark struct {
	deadline, life int64 // in ms
}

func readMark(packed int64) mark {
	return mark{deadline: packed / 4096, life: packed % 4096 / 2 * 1000}
}

func (m mark) live(now int64) bool {
	return m.deadline >= now && m.deadline-now <= m.life+1000
}

func (m mark) late(now int64) bool { return 3*(m.deadline-now) < m.life }

// cutEntry returns what a waiter names, and the value that its keys will hold. fields is what follows the id in its entry.
func cutEntry(fields string) (names, value string) {
	parts := strings.SplitN(fields, " ", 4) // wants, ttl, the two lengths, then the fence key's name, the names and the value
	if len(parts) < 4 {
		return "", ""
	}
	lengths, rest := strings.SplitN(parts[2], "+", 2), parts[3]
	for i, digits := range lengths {
		length, err := strconv.Atoi(digits)
		if err != nil || length < 0 || length > len(rest) {
			return "", ""
		}
		if i == 1 {
			names = rest[:length]
		}
		rest = rest[length:]
	}
	return names, rest
}
