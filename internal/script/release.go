package script

import (
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// Release returns a call that releases the keys, and serves or wakes the first waiters in their lines.
func (s *Scripts) Release(token string, keys Keys) *transport.Call {
	c := &transport.Call{Script: s.release, Spare: keys.lines(), Token: token}
	var n any
	c.Keys, n = keys.held()
	c.Simple = len(c.Keys) == 1 && len(c.Spare) == 1
	c.SetArgs(n)
	return c
}

// AndFence makes a release mint the fencing token of the next in line from this fence key. leaver is the entry of a waiter
// that leaves the lines, as AndLeave takes it; "" for none.
func AndFence(c *transport.Call, fenceKey, leaver string) {
	c.Keys, c.Simple = append(c.Keys, fenceKey), false
	c.Args = append(c.Args, leaver, "1")
}

// AndLeave makes a release also take a waiter out of the lines.
func AndLeave(c *transport.Call, entry string) {
	c.Args, c.Simple = append(c.Args, entry), false
}

// AndStepBack makes a release put a waiter back into the lines, with its ticket.
func AndStepBack(c *transport.Call, entry string, ticket int64, m Mark) {
	c.Simple = false
	c.Args = append(c.Args, entry, "0", ticket, m.seconds(), m.state())
}

// Limit makes a release that was made for more keys release only these.
func Limit(c *transport.Call, keys Keys) {
	var n any
	c.Keys, n = keys.held()
	c.Spare, c.Args = keys.lines(), []any{n}
	c.Simple = false // there may be more than one key now
}

// Lacked returns how many keys an answered release has found lost.
func Lacked(c *transport.Call) int {
	lost, _ := c.Reply.([]any)
	return len(lost)
}

// Refresh returns a call that gives the keys a new ttl. If it only prolongs, it never shortens a ttl, however late it is
// executed. Metadata "" keeps what is stored.
// Under a guard, keys that are put back get the metadata in kept then.
func (s *Scripts) Refresh(token string, keys Keys, ttl time.Duration, metadata, kept string, prolongs bool) *transport.Call {
	c := &transport.Call{
		Script: s.refresh, Keys: keys.args(), Token: token, Args: []any{ttl.Milliseconds(), metadata, flag(prolongs)},
	}
	if s.Guard.IsSet() {
		c.Args = append(c.Args, kept)
	}
	var n any
	if c.Keys, n = keys.held(); keys.sharing() != nil {
		c.Args = append(c.Args[:3:3], kept, n)
	}
	return c
}

// Refreshed is the reply to a refresh.
type Refreshed struct {
	Loss    Loss
	Closure Closure       // of the guard; zero while that is open
	Back    []string      // the keys that were put back
	Again   time.Duration // if not 0, nothing was done: call again after that time
}

// ReadRefreshed reads a reply of refresh for these keys.
func ReadRefreshed(keys []string, reply any) (r Refreshed, err error) {
	parts, _ := reply.([]any)
	if len(parts) < 3 || parts[0] != int64(0) {
		r.Loss, err = ReadLoss(keys, reply)
		return r, err
	}
	closure, ok := readClosure(parts, 1)
	if !ok {
		return Refreshed{}, unexpected(reply)
	}
	r.Closure = closure
	for _, entry := range parts[3:] {
		index, _ := entry.(int64)
		if index < 0 && len(parts) == 4 {
			r.Again = time.Duration(-index) * time.Millisecond
			return r, nil
		}
		if index < 1 || int(index) > len(keys) {
			return Refreshed{}, unexpected(reply)
		}
		r.Back = append(r.Back, keys[index-1])
	}
	return r, nil
}

// Loss says which keys were not mine, as a reply of refresh or release reports. The zero value says that all were mine.
type Loss struct {
	Keys  []string // the lost keys, in the order of the call
	Taken int      // how many of them another holds; the others are gone
	Other string   // the first key that another holds; "" for none
	Total int      // keys of the call
}

// IsNone reports whether nothing is lost.
func (l Loss) IsNone() bool { return len(l.Keys) == 0 }

// IsWhole reports whether all keys are lost.
func (l Loss) IsWhole() bool { return len(l.Keys) > 0 && len(l.Keys) == l.Total }

// ReadLoss reads a reply of refresh or release for these keys.
func ReadLoss(keys []string, reply any) (Loss, error) {
	if reply == int64(0) {
		return Loss{}, nil
	}
	indices, ok := reply.([]any)
	if !ok {
		return Loss{}, unexpected(reply)
	}
	l := Loss{Keys: make([]string, len(indices)), Total: len(keys)}
	for i, entry := range indices {
		index, _ := entry.(int64)
		taken := index > 0
		if !taken {
			index = -index
		}
		if index < 1 || int(index) > len(keys) {
			return Loss{}, unexpected(reply)
		}
		key := keys[index-1]
		if l.Keys[i] = key; taken {
			l.note(key)
		}
	}
	return l, nil
}

// note notes that another holds this key.
func (l *Loss) note(key string) {
	if l.Taken++; l.Other == "" {
		l.Other = key
	}
}
