package script

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// Obtain is what an obtain asks one Redis for.
type Obtain struct {
	Keys     Keys
	Token    string
	Custom   bool // the caller chose the token, so an earlier hold may have keys with it
	Mends    bool // the token has a lock, so an earlier call for that may have keys with it
	Metadata string
	TTL      time.Duration
	FenceKey string // "" for no fencing token
	Proposal int64  // of a fencing token and of a ticket, in µs since 1970; 0 for none
	Names    string // what an entry in line names; see WriteNames
}

// Obtain makes c a call that acquires all keys or none. The caller takes no position in line: see AndWait.
func (s *Scripts) Obtain(c *transport.Call, o *Obtain) {
	keys, n := o.Keys.held()
	c.Script, c.Keys, c.Spare, c.Token = s.obtain, keys, o.Keys.lines(), o.Token
	var fenced any = "0" // a constant costs no allocation
	if o.FenceKey != "" {
		c.Keys = append(c.Keys, o.FenceKey)
		fenced = "1"
		if o.Proposal != 0 {
			fenced = o.Proposal
		}
	}
	c.SetArgs(o.Metadata, o.TTL.Milliseconds(), n, fenced)
	replaces := o.Custom || o.Mends // the metadata of keys that the token has; otherwise a later Refresh may have written that
	if replaces {
		c.Args = append(c.Args, "1")
	}
	c.Simple = n == any(1) && len(c.Spare) == 1 && o.FenceKey == "" && !replaces
}

// AndWait makes an obtain take a position in line if it is refused, with this entry and the ticket of the waiter. A waiter
// without a ticket passes 0, and may propose one; 0 for no proposal.
func AndWait(c *transport.Call, entry string, ticket int64, m Mark, proposal int64) {
	c.Simple = c.Simple && ticket == 0
	if len(c.Args) == 4 { // Obtain has left out the "0"
		c.Args = append(c.Args, "0")
	}
	c.Args = append(c.Args, entry, ticket, m.state(), m.seconds())
	if proposal != 0 && ticket == 0 {
		c.Args = append(c.Args, proposal)
	}
	c.Accept = isNoRefusal
}

// isNoRefusal reports whether a reply of obtain_each ends the call. After a refusal, only obtain gives a position in line.
func isNoRefusal(reply any) bool {
	parts, _ := reply.([]any)
	return reply != any(int64(0)) && !isClosed(parts)
}

func flag(is bool) any {
	if is {
		return "1"
	}
	return "0"
}

// maxEntryMetadata is how many bytes of metadata a position in line shows. A waiter with more is not handed its keys.
const maxEntryMetadata = 1024

// Entry returns what follows the id of a waiter in its entry in the lines, as line.lua describes it: how many keys it wants
// (0 if no release may hand them over), its ttl, its fence key, what it names, and the value that its keys will hold.
func (o *Obtain) Entry() string {
	wants, metadata := strconv.Itoa(len(o.Keys.Names)), o.Metadata
	if len(metadata) > maxEntryMetadata {
		wants, metadata = "0", metadata[:maxEntryMetadata]
	}
	if o.Custom || o.Proposal != 0 { // a release knows neither an earlier hold with this token nor holds at other places
		wants = "0"
	}
	if o.Keys.sharing() != nil {
		wants = "00"
	}
	value, lengths := o.Token, strconv.Itoa(len(o.FenceKey))
	if metadata != "" {
		value += " " + metadata
	}
	if o.Names != "" {
		lengths += "+" + strconv.Itoa(len(o.Names))
	}
	return fmt.Sprintf(" %s %d %s %s%s%s", wants, o.TTL.Milliseconds(), lengths, o.FenceKey, o.Names, value)
}

// Grant is the reply to an obtain, also to a refused one.
type Grant struct {
	Granted bool
	Fence   int64
	Taken   []string // the keys that were newly acquired
	Closure Closure  // of the guard that has refused; zero if none has

	// Of a refused waiter with a position in line.

	Ticket int64         // 0 if it has none
	Wait   time.Duration // how long to wait before its next try; 0 if only a message or a beat can say when it makes sense
	Served int64         // when the script ran, in µs by the server's clock
	Made   []string      // the keys in whose lines its inbox had no mark, so that others of the inbox may be missing there
}

// ReadGrant reads a reply of obtain for these keys.
func ReadGrant(keys []string, reply any) (Grant, error) {
	switch reply {
	case int64(0):
		return Grant{}, nil
	case int64(1):
		return Grant{Granted: true, Taken: keys}, nil
	}
	parts, _ := reply.([]any)
	if len(parts) == 0 {
		return Grant{}, unexpected(reply)
	}
	first, ok := parts[0].(int64)
	switch {
	case isClosed(parts):
		closure, ok := readClosure(parts, 1)
		if !ok {
			return Grant{}, unexpected(reply)
		}
		return Grant{Closure: closure}, nil
	case first == -1 && (len(parts) == 5 || len(parts) == 7): // refused, with a position in line
		number := func(i int) int64 { n, _ := parts[i].(int64); return n }
		closure, ok := readClosure(parts, 5)
		if !ok {
			return Grant{}, unexpected(reply)
		}
		made, ok := keysAt(keys, parts[4])
		if !ok {
			return Grant{}, unexpected(reply)
		}
		return Grant{
			Wait: time.Duration(number(1)) * time.Millisecond, Ticket: number(2), Served: number(3),
			Made: made, Closure: closure,
		}, nil
	case !ok || first < 0:
		return Grant{}, unexpected(reply)
	case len(parts) == 1:
		return Grant{Granted: true, Fence: first, Taken: keys}, nil
	}
	held := make(map[int64]bool, len(parts)-1)
	for _, entry := range parts[1:] {
		index, _ := entry.(int64)
		held[index] = true
	}
	g := Grant{Granted: true, Fence: first}
	for i, key := range keys {
		if !held[int64(i+1)] {
			g.Taken = append(g.Taken, key)
		}
	}
	return g, nil
}

// keysAt returns the keys whose indices, from 1 on, a reply lists.
func keysAt(keys []string, list any) (at []string, ok bool) {
	indices, ok := list.([]any)
	for _, entry := range indices {
		i, _ := entry.(int64)
		if i < 1 || int(i) > len(keys) {
			return nil, false
		}
		at = append(at, keys[i-1])
	}
	return at, ok
}

// Fence returns a call that raises the fence counter to least, or mints a fencing token if least is 0. It does either only
// if the token has all keys.
func (s *Scripts) Fence(token string, keys Keys, fenceKey string, least int64) *transport.Call {
	c := &transport.Call{Script: s.fence, Token: token}
	c.SetArgs(least)
	var n any
	if c.Keys, n = keys.held(); keys.sharing() != nil {
		c.Args = append(c.Args, n)
	}
	c.Keys = append(c.Keys, fenceKey)
	return c
}

// ReadFence reads a reply of fence: the counter, or 0 if a key was lost.
func ReadFence(reply any) (int64, error) {
	counter, ok := reply.(int64)
	if !ok {
		return 0, unexpected(reply)
	}
	return counter, nil
}
