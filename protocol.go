package redislock

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// This file is the Go side of the scripts: constructors for their calls, and readers for their replies. Those of pttl and
// waiters stand where they are used, in Lock.TTL and Client.Line. The headers of the scripts say what the arguments and
// replies mean.

var (
	//go:embed obtain.lua
	obtainSource string
	//go:embed obtain_each.lua
	obtainEachSource string
	//go:embed refresh.lua
	refreshSource string
	//go:embed release.lua
	releaseSource string
	//go:embed release_each.lua
	releaseEachSource string
	//go:embed pttl.lua
	pttlSource string
	//go:embed fence.lua
	fenceSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed waiters.lua
	waitersSource string
	//go:embed blocker.lua
	blockerSource string
	//go:embed line.lua
	lineSource string
)

var (
	obtainScript  = yielding(transport.NewScript(withLine(obtainSource)).Join(obtainEachSource, 3))
	refreshScript = transport.NewScript(refreshSource)
	releaseScript = transport.NewScript(withLine(releaseSource)).Join(releaseEachSource, 1)
	pttlScript    = transport.NewScript(pttlSource)
	fenceScript   = transport.NewScript(fenceSource)
	inspectScript = transport.NewScript(inspectSource)
	waitersScript = transport.NewScript(waitersSource)
	blockerScript = transport.NewScript(blockerSource)
)

// withLine puts the rules of the line into a script, where it has the words "include line".
func withLine(source string) string {
	return strings.Replace(source, "-- include line\n", lineSource, 1)
}

// yielding makes a script's calls wait for others: a script that acquires locks must not hold up those that release or
// refresh them.
func yielding(s *transport.Script) *transport.Script {
	s.Yields = true
	return s
}

// fillObtain makes c a call of obtain. A call without a place in line has no line arguments.
func (a *attempt) fillObtain(c *transport.Call) {
	n := len(a.keys)
	c.Script, c.Keys, c.Spare, c.Token = obtainScript, a.boxed[:n:n], a.boxed[n:], a.token
	var fenced any = "0" // a constant costs no allocation
	if a.fenceKey != "" {
		c.Keys = append(c.Keys, a.fenceKey)
		fenced = "1"
		if a.proposal != 0 {
			fenced = a.proposal
		}
	}
	c.SetArgs(a.metadata, a.ttl.Milliseconds(), n, fenced)
	c.Simple = n == 1 && len(c.Spare) == 1 && a.fenceKey == "" && !a.custom && a.waiter.lastTicket() == 0
	if a.waiter != nil {
		c.Args = a.waiter.begin(a, c.Args)
		c.Accept = isNoRefusal
	}
}

// isNoRefusal reports whether a reply of obtain_each finishes a call that wants a place in line if it is refused.
func isNoRefusal(reply any) bool { return reply != int64(0) }

// grant is the result of an obtain, also of a refused one.
type grant struct {
	granted bool
	fence   int64
	taken   []string // the keys that were newly acquired

	// Of a refused waiter with a place in line.
	ticket  int64         // 0 if it has none
	wait    time.Duration // how long to wait before its next try
	served  int64         // when the script ran, in µs by the server's clock
	life    time.Duration // how long it is live without another try
	missing bool          // it had a ticket, but was no longer in every line
}

func readGrant(keys []string, reply any) (grant, error) {
	switch reply {
	case int64(0):
		return grant{}, nil
	case int64(1):
		return grant{granted: true, taken: keys}, nil
	}
	parts, _ := reply.([]any)
	if len(parts) == 0 {
		return grant{}, fault.Unexpected(reply)
	}
	first, ok := parts[0].(int64)
	switch {
	case first == -1 && len(parts) == 6: // refused, with a place in line
		number := func(i int) int64 { n, _ := parts[i].(int64); return n }
		return grant{
			wait: time.Duration(number(1)) * time.Millisecond, ticket: number(2), served: number(3),
			life: time.Duration(number(4)) * time.Millisecond, missing: number(5) == 1,
		}, nil
	case !ok || first < 0:
		return grant{}, fault.Unexpected(reply)
	case len(parts) == 1:
		return grant{granted: true, fence: first, taken: keys}, nil
	}
	held := make(map[int64]bool, len(parts)-1)
	for _, entry := range parts[1:] {
		index, _ := entry.(int64)
		held[index] = true
	}
	g := grant{granted: true, fence: first}
	for i, key := range keys {
		if !held[int64(i+1)] {
			g.taken = append(g.taken, key)
		}
	}
	return g, nil
}

// newRelease returns an unsent call that releases the keys and serves or wakes the first waiters in their lines. The
// end of ctx does not end it.
func newRelease(ctx context.Context, token string, keys, lines []any) *transport.Call {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c := &transport.Call{Script: releaseScript, Keys: keys, Spare: lines, Token: token, Ctx: ctx}
	c.Simple = len(keys) == 1 && len(lines) == 1
	c.SetArgs(len(keys))
	return c
}

// releaseOf is newRelease for keys that are not boxed yet.
func releaseOf(ctx context.Context, token string, keys []string) *transport.Call {
	boxed, n := box(keys), len(keys)
	return newRelease(ctx, token, boxed[:n:n], boxed[n:])
}

// andLeave makes a release also take a waiter out of the lines.
func andLeave(c *transport.Call, entry string) {
	c.Args, c.Simple = append(c.Args, entry), false
}

// newFence returns an unsent call that raises the fence counter to least, if the token has all keys, or mints a fencing
// token if least is 0.
func newFence(ctx context.Context, token string, keys []any, fenceKey string, least int64) *transport.Call {
	c := &transport.Call{Script: fenceScript, Keys: append(slices.Clip(keys), fenceKey), Token: token, Ctx: ctx}
	c.SetArgs(least)
	return c
}

func readFence(reply any) (int64, error) {
	counter, ok := reply.(int64)
	if !ok {
		return 0, fault.Unexpected(reply)
	}
	return counter, nil
}

// newRefresh returns an unsent call that gives the lock's keys a new ttl. A renewal never shortens a ttl,
// but gives one to a key without expiry.
func (k *claim) newRefresh(ctx context.Context, ttl time.Duration, metadata string, renewal bool) *transport.Call {
	mode := "0"
	if renewal {
		mode = "1"
	}
	return &transport.Call{
		Script: refreshScript, Keys: k.boxed[:len(k.keys)], Token: k.token,
		Args: []any{ttl.Milliseconds(), metadata, mode}, Ctx: ctx,
	}
}

// readLoss turns the reply of refresh or release into an error. The reply is 0, or the indices of the keys that were
// not mine. The error is nil for 0, whole if all keys are lost, and otherwise a *LostError.
func readLoss(keys []string, reply any, whole error) error {
	if reply == int64(0) {
		return nil
	}
	lost, ok := reply.([]any)
	if !ok {
		return fault.Unexpected(reply)
	}
	partial := &LostError{Keys: make([]string, len(lost)), total: len(keys), decides: whole}
	for i, entry := range lost {
		index, _ := entry.(int64)
		if index > 0 {
			partial.taken++
		} else {
			index = -index
		}
		if index < 1 || int(index) > len(keys) {
			return fault.Unexpected(reply)
		}
		partial.Keys[i] = keys[index-1]
	}
	switch len(lost) {
	case 0:
		return nil
	case len(keys):
		return whole
	}
	return partial
}

// readLossCause turns a reply of refresh into the cause for the contexts of a kept lock: why it was lost.
func readLossCause(keys []string, reply any) error {
	err := readLoss(keys, reply, ErrLockNotHeld)
	if err != ErrLockNotHeld {
		return err
	}
	for _, entry := range reply.([]any) { // readLoss has checked the type
		if index, _ := entry.(int64); index > 0 {
			return fmt.Errorf("%w: another holder has %q", ErrLockNotHeld, keys[index-1])
		}
	}
	return fmt.Errorf("%w: %s is gone", ErrLockNotHeld, fault.Describe(keys))
}

// readLostKeys returns the keys that a reply reports as lost, and why: LossTaken if another holds any of them.
func readLostKeys(keys []string, reply any) (lost []string, cause LossCause) {
	cause = LossGone
	indices, _ := reply.([]any)
	for _, entry := range indices {
		index, _ := entry.(int64)
		if index > 0 {
			cause = LossTaken
		} else {
			index = -index
		}
		if 1 <= index && int(index) <= len(keys) {
			lost = append(lost, keys[index-1])
		}
	}
	return lost, cause
}

// held is what one key holds.
type held struct {
	token, metadata string
	ttl             time.Duration // -1 without expiry
	gone            bool          // the key does not exist
	waiters         int
	since           time.Time // zero without waiters
}

// newInspect returns an unsent call that asks what keys hold and who waits for them. Keys that have a line must come
// first: see linesFirst.
func newInspect(ctx context.Context, keys []string, lines bool) *transport.Call {
	boxed := box(keys)
	c := &transport.Call{Script: inspectScript, Keys: boxed[:len(keys)], Args: []any{len(keys)}, Ctx: ctx}
	if lines {
		c.Spare = boxed[len(keys):]
	}
	return c
}

// linesFirst compares keys so that those that have a line come first, as inspect and blocker require.
func linesFirst(a, b string) int {
	switch has := keyname.HasLine(a); {
	case has == keyname.HasLine(b):
		return 0
	case has:
		return -1
	}
	return 1
}

func readHeld(keys []string, reply any) ([]held, error) {
	values, _ := reply.([]any)
	if len(values) != 4*len(keys) {
		return nil, fault.Unexpected(reply)
	}
	all := make([]held, len(keys))
	for i := range all {
		h := &all[i]
		value, _ := values[4*i].(string) // nil for a key of another type
		left, _ := values[4*i+1].(int64)
		switch left {
		case -2:
			h.gone = true
		case -1:
			h.ttl = -1
		default:
			h.ttl = time.Duration(max(left, 1)) * time.Millisecond // 0 would read as a key that is gone
		}
		h.token, h.metadata = splitValue(value)
		waiters, _ := values[4*i+2].(int64)
		h.waiters = int(waiters)
		if ticket, _ := values[4*i+3].(int64); ticket > 0 {
			h.since = time.UnixMicro(ticket)
		}
	}
	return all, nil
}

// newBlocker returns an unsent call that asks what blocks an obtain. Keys that have a line must come first.
func newBlocker(ctx context.Context, keys []string, token string, ticket int64) *transport.Call {
	boxed := box(keys)
	return &transport.Call{
		Script: blockerScript, Keys: boxed[:len(keys)], Spare: boxed[len(keys):], Token: token, Args: []any{len(keys), ticket},
		Ctx: ctx,
	}
}

func readBlocker(keys []string, reply any) *RefusedError {
	parts, _ := reply.([]any)
	if len(parts) != 4 {
		return &RefusedError{}
	}
	i, _ := parts[0].(int64)
	value, _ := parts[1].(string)
	left, _ := parts[2].(int64)
	ahead, _ := parts[3].(int64)
	if i < 1 || int(i) > len(keys) {
		return &RefusedError{}
	}
	e := &RefusedError{Key: keys[i-1], Ahead: int(ahead)}
	e.Token, e.Metadata = splitValue(value)
	switch {
	case value == "" && left == 0: // nobody holds it; an empty value has a ttl
	case left < 0:
		e.TTL = -1
	default:
		e.TTL = time.Duration(max(left, 1)) * time.Millisecond // 0 would mean that nobody holds the key
	}
	return e
}
