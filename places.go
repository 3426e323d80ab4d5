package redislock

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// A lock can live on several places: the servers of a quorum, or the slots or shards that hold its keys. It is a list of
// holds, one for each place, and is valid while enough of them are. The rules for quorums are those of Redlock
// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with the holes closed that docs/decisions.md
// describes.

// place is one of the places of a lock.
type place struct {
	client *Client // obtains the hold; it has no Tracer of its own
	name   string  // for errors
	health *health

	// Of the keys that live here. For a quorum these are all, and the fields are nil until a lock sets them.
	indices []int // in the keys of the lock
	keys    []string
	boxed   []any
}

// places are the places of a lock, and how many of them must agree.
type places struct {
	all  []*place
	need int
}

// isQuorum reports whether the places are servers that all have all keys.
func (p *places) isQuorum() bool { return p.all[0].indices == nil }

// spare returns how many places can be missing.
func (p *places) spare() int { return len(p.all) - p.need }

// numbers returns the numbers of all places.
func (p *places) numbers() []int {
	numbers := make([]int, len(p.all))
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// NewQuorum returns a Client whose locks live on several independent Redis servers at once. A lock is held while a
// majority of the servers hold all of its keys. So it survives the failure of the other servers, and a server that
// loses its data can be made to hold the keys again. Use three or five servers that do not replicate each other. Each
// must be a different server: one server under two addresses would count twice.
//
// All methods work as for one server, with these differences:
//   - Obtain asks all servers at once and returns when a majority has granted or refused. A server that does not answer
//     within 100 ms, or four times its usual time if that is longer, counts as absent for this call.
//   - If the servers that answered can decide nothing, the error names each server that failed and does not match
//     [ErrNotObtained]. With [Options.Queue], the call waits on.
//   - [Lock.Until] is when the majority ends: with three servers, the second largest of the three validities.
//   - A retry without Queue waits up to half longer than the strategy says, at random, because callers that try at the
//     same times can refuse each other for ever.
//   - A lock is lost when so many servers have lost keys that no majority is left. The keys of a [*LostError] are those
//     that a majority misses.
//   - Waiters are woken; no server hands keys over directly.
//   - [Options.AcrossSlots] returns [ErrInvalid].
//
// KeepAlive, Do and Refresh acquire the keys again at a server that has lost them, once a majority has confirmed the
// lock. The servers' clocks may differ, but must run at speeds that differ by less than 1 %. A majority of servers that
// lose their data within one ttl can break exclusion, and so can a change of the list of servers while locks are held.
// The file docs/guarantees.md has the details.
//
// NewQuorum does no I/O. If clients is empty, or holds a nil, a repeated or an unusable client, every later call
// returns [ErrInvalid]. One client makes the same Client as [New]. The caller closes the Redis clients, after the Client.
func NewQuorum(clients []RedisClient, opts ...ClientOption) *Client {
	if len(clients) == 1 {
		return New(clients[0], opts...)
	}
	set := newClientOptions(opts)
	c := &Client{tracer: set.tracer, closed: make(chan struct{})}
	if len(clients) == 0 {
		c.unusable = invalid("a quorum of no servers; pass three or five clients")
		return c
	}
	c.quorum = &places{need: len(clients)/2 + 1}
	seen := map[RedisClient]int{}
	for i, client := range clients {
		server := newClient(client, set)
		server.tracer = &Tracer{}
		if server.unusable != nil {
			c.unusable = fmt.Errorf("client %d of the quorum: %w", i+1, server.unusable)
			return c
		}
		if reflect.TypeOf(client).Comparable() {
			if before, again := seen[client]; again {
				c.unusable = invalid("clients %d and %d of the quorum are the same; each must be another server", before+1, i+1)
				return c
			}
			seen[client] = i
		}
		name := fmt.Sprintf("server %d (%s)", i+1, server.redis.Address())
		c.quorum.all = append(c.quorum.all, &place{client: server, name: name, health: &health{}})
	}
	return c
}

// placesFor returns the places of a lock, or nil if one script can hold all of its keys, which it checks. across allows
// for several slots.
func (c *Client) placesFor(ctx context.Context, operation string, keys []string, fenceKey string, across bool) (*places, error) {
	if c.quorum != nil {
		boxed := box(keys)
		p := &places{need: c.quorum.need, all: make([]*place, len(c.quorum.all))}
		for i, server := range c.quorum.all {
			p.all[i] = &place{client: server.client, name: server.name, health: server.health, keys: keys, boxed: boxed}
		}
		return p, nil
	}
	scripted := keys
	if fenceKey != "" {
		scripted = append(slices.Clone(keys), fenceKey)
	}
	if across && !haveOneTag(scripted) && c.redis.HasSlots() {
		p, err := c.slotsOf(keys, scripted)
		if err != nil {
			return nil, failed(operation, keys, err)
		}
		if p != nil {
			if c.redis.IsRing() {
				return p, c.checkHooks(ctx, operation, keys)
			}
			return p, nil
		}
	}
	return nil, c.checkShard(ctx, operation, scripted)
}

// slotsOf returns the places of keys in several slots or shards, or nil if all of scripted are in one. Places are in the same order for all
// callers, so that callers who acquire them one after the other cannot wait for each other in a circle.
func (c *Client) slotsOf(keys, scripted []string) (*places, error) {
	groups, err := c.redis.Group(scripted)
	if err != nil {
		return nil, err
	}
	if len(groups) < 2 {
		return nil, nil
	}
	if groups, err = c.redis.Group(keys); err != nil { // the fence key can be elsewhere
		return nil, err
	}
	p := &places{need: len(groups)}
	for _, group := range groups {
		here := &place{client: c.inner(), indices: group, keys: make([]string, len(group)), health: &health{}}
		for i, at := range group {
			here.keys[i] = keys[at]
		}
		here.boxed = box(here.keys)
		here.name = describe(here.keys)
		p.all = append(p.all, here)
	}
	slices.SortFunc(p.all, func(a, b *place) int {
		return strings.Compare(c.redis.Shard(a.keys[0]), c.redis.Shard(b.keys[0]))
	})
	return p, nil
}

// inner returns the Client that obtains the holds of locks across slots. It shares the Redis of c and tells no Tracer.
func (c *Client) inner() *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots == nil {
		c.slots = &Client{
			redis: c.redis, tracer: &Tracer{}, renewals: newRenewals(c.redis), lines: c.lines, closed: c.closed,
		}
	}
	return c.slots
}

// index returns the index, in the keys of the lock, of a key of this place.
func (p *place) index(i int) int {
	if p.indices == nil {
		return i
	}
	return p.indices[i]
}

// health is how a server of a quorum answers the obtains of one Client.
type health struct {
	mu    sync.Mutex    // protects the fields below
	usual time.Duration // how long answers took lately, a moving average; 0 before the first
	calls int           // under way
	heard time.Time     // the last answer, or when the first of the calls under way began
	down  bool          // the last call was not answered, or not in time
	probe time.Time     // when to send another call to a server that is down
}

// admit reports whether to send a call to the server, which must call ended afterwards. While the server does not
// answer, one call a second goes out to see whether it does again.
func (h *health) admit(now time.Time, keys int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls > 0 && now.Sub(h.heard) > h.patienceLocked(keys, 0) {
		h.down = true
	}
	if h.down && h.calls > 0 && now.Before(h.probe) {
		return false
	}
	if h.down {
		h.probe = now.Add(probeInterval)
	}
	if h.calls == 0 {
		h.heard = now
	}
	h.calls++
	return true
}

// ended notes that a call has ended, how long it took, and whether the server has answered it.
func (h *health) ended(now time.Time, took time.Duration, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls--
	if !answered {
		h.down = true
		return
	}
	h.heard, h.down = now, false
	if h.usual == 0 {
		h.usual = max(took, 1)
	} else {
		h.usual = max((7*h.usual+took)/8, 1)
	}
}

const (
	// leastPatience is how long a server of a quorum may take for an answer before it counts as absent, unless it
	// usually takes longer. A server that has never answered may have to be connected to first.
	leastPatience = 100 * time.Millisecond
	firstPatience = 250 * time.Millisecond
	longPatience  = 2 * time.Second // if no server has answered yet, they may all be far away

	// keyPatience is what each key adds.
	keyPatience = 20 * time.Microsecond

	probeInterval = time.Second
)

// patience returns how long to wait for an answer of the server. fastest is how long the first answer of any server in
// the same round took; 0 if none has come.
func (h *health) patience(keys int, fastest time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.patienceLocked(keys, fastest)
}

func (h *health) patienceLocked(keys int, fastest time.Duration) time.Duration {
	more := time.Duration(keys) * keyPatience
	switch {
	case h.usual > 0:
		return max(leastPatience, 4*h.usual) + more
	case fastest == 0:
		return longPatience + more
	}
	return max(firstPatience, 2*fastest) + more
}

// sideBySide calls do for each of the places with these numbers, each in a goroutine of its own, and note with each
// result, in the goroutine of the caller. It returns when note says that it knows enough, or when all have returned.
// The goroutines that are left end with their do. If a do panics before that, sideBySide panics with the same value.
func sideBySide[T any](numbers []int, do func(i int) T, note func(i int, result T) (enough bool)) {
	type outcome struct {
		i        int
		result   T
		panicked *panicked // nil if do has returned
	}
	outcomes := make(chan outcome, len(numbers))
	for _, i := range numbers {
		transport.Go(func() {
			o := outcome{i: i, panicked: &panicked{}}
			defer func() {
				if o.panicked != nil {
					o.panicked.value = recover()
				}
				outcomes <- o
			}()
			o.result = do(i)
			o.panicked = nil
		})
	}
	for range numbers {
		o := <-outcomes
		o.panicked.again()
		if note(o.i, o.result) {
			return
		}
	}
}

// panicked is what a goroutine has panicked with.
type panicked struct {
	value any // nil for a runtime.Goexit
}

// again panics with the same value, or calls runtime.Goexit. For nil it does nothing.
func (p *panicked) again() {
	switch {
	case p == nil:
	case p.value == nil:
		runtime.Goexit()
	default:
		panic(p.value)
	}
}

// detached returns a ctx for calls that may outlast their caller: it has the values of ctx and ends with ctx, until the
// returned function is called.
func detached(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return ctx, func() {}
	}
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return free, func() { stop() }
}
