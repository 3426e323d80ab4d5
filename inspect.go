package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/argument"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Status is what [Client.Inspect] found about one key.
type Status struct {
	Key      string
	Token    string        // of the holder; "" if the key is free, or no lock can have written its value
	Metadata string        // what the holder stored
	TTL      time.Duration // the remaining ttl; -1 for a key without expiry, 0 if the key is free, or as Places says

	Waiters      int       // how many live waiters are in line for the key; see [Options.Queue]
	WaitingSince time.Time // about when the first of them came, by the server's clock; zero without waiters

	// Holders are those who hold a key that several may hold, those who hold it for longest first, and at most 100; nil if the
	// key is free or exclusive. Token, Metadata and TTL are those of the first one, but TTL is that of the key, which lasts as
	// long. HolderCount is how many there are. See [Options.Shared].
	Holders     []Holder
	HolderCount int

	// Waits are keys for which the holder waits itself, in line and while it holds Key, as of a few seconds ago, if anybody
	// waits for Key; nil if that is not known, or if it does not wait. Of several holders, it is said of the first one.
	Waits []string

	// Line is the first of the waiters, in the order in which they will be served: at most 100, and of many keys fewer, so that
	// they are about 10,000 in all. [Client.Line] returns all.
	Line []Waiter

	// Places are what the servers of a quorum hold, where they disagree; nil where they agree and for one Redis. Servers
	// that did not answer are left out. If no majority agrees, Token is "" and TTL is 0, although some servers hold the key.
	Places []PlaceStatus
}

// Holder is one of those who hold a key that several may hold.
type Holder struct {
	Token    string
	Metadata string        // what it stored
	TTL      time.Duration // for how long it holds the key
	Limit    int           // how many holders it lets the key have, itself included; 0 for no limit
}

// PlaceStatus is what one server of a quorum holds for a key.
type PlaceStatus struct {
	Server string        // its number in the list given to [NewQuorum], and its address
	Token  string        // as in Status
	TTL    time.Duration // as in Status
}

// Inspect returns who holds each of keys, in their order. It changes nothing, and its result may be out of date when it
// returns. It needs one round trip; on a Cluster, one for each slot, and on a Ring, one for each shard, in parallel.
//
// Inspect counts only live waiters: see [Options.Queue]. It shows no waiters for a key that can have no line, and for the
// keys of a Cluster slot that is moving. It splits a value that no lock has written like any other: the token ends at the
// first space, and the metadata follows. If that leaves the Token empty, or if the key is not a string, a TTL other than 0
// shows that the key is not free.
//
// On a quorum, it returns what a majority of the servers hold: the Token that a majority has, and the TTL that a majority
// has at least. Without such a token, Token is "" and TTL is 0, and Places says what each server that has answered holds.
// The others may hold the key as well. Inspect needs the answers of a majority.
//
// Inspect shows what is there, also while the guard of [WithGuard] is closed. A lock whose keys Redis has forgotten, and
// whose holder has not put them back yet, looks free.
//
// Inspect blocks until Redis answers or ctx ends. It returns an error that wraps [ErrInvalid] without keys, for a key
// that cannot be a lock, or for more keys than one script can hold (see [Client.ObtainMulti]); [ErrClosed] after Close;
// an error that wraps ctx.Err() if ctx ended first; and any error of Redis, wrapped.
func (c *Client) Inspect(ctx context.Context, keys ...string) ([]Status, error) {
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	glance := script.Glance{Shown: min(max(maxInLines/len(keys), 1), maxInLine)}
	statuses := make([]Status, len(keys))
	if c.quorum != nil {
		views, err := c.quorum.Inspect(ctx, keys, glance)
		if err != nil {
			return nil, err
		}
		for i, view := range views {
			statuses[i] = statusOf(keys[i], &view.Agreed)
			for _, s := range view.Servers {
				statuses[i].Places = append(statuses[i].Places, PlaceStatus(s))
			}
		}
		return statuses, nil
	}
	held, err := c.one.Inspect(ctx, keys, glance)
	if err != nil {
		return nil, err
	}
	for i := range held {
		statuses[i] = statusOf(keys[i], &held[i])
	}
	return statuses, nil
}

// glance is look, but keys that this user may not read hold nothing, and nobody waits for them: the search for a circle asks
// also for keys that other callers hold, or this one at another Redis.
func (c *Client) glance(ctx context.Context, keys []string, g script.Glance) ([]script.Held, error) {
	held, err := c.look(ctx, keys, g)
	if !transport.HasCode(err, "NOPERM") {
		return held, err
	}
	held = make([]script.Held, len(keys))
	for i := range keys {
		one, err := c.look(ctx, keys[i:i+1], g)
		switch {
		case err == nil:
			held[i] = one[0]
		case !transport.HasCode(err, "NOPERM"):
			return nil, err
		}
	}
	return held, nil
}

// look returns what keys hold, on a quorum as a majority of the servers agrees, and as much of their lines as g says.
func (c *Client) look(ctx context.Context, keys []string, g script.Glance) ([]script.Held, error) {
	if c.quorum == nil {
		return c.one.Inspect(ctx, keys, g)
	}
	views, err := c.quorum.Inspect(ctx, keys, g)
	held := make([]script.Held, len(views))
	for i := range views {
		held[i] = views[i].Agreed
	}
	return held, err
}

// maxInLine bounds Status.Line of one key, and maxInLines those of all keys of one Inspect.
const (
	maxInLine  = 100
	maxInLines = 10_000
)

// statusOf returns the status of a key that holds this.
func statusOf(key string, h *script.Held) Status {
	s := Status{
		Key: key, Token: h.Token, Metadata: h.Metadata, TTL: h.TTL, HolderCount: h.Count,
		Waiters: h.Waiters, WaitingSince: h.Since, Waits: h.Waits,
	}
	for _, one := range h.Holders {
		s.Holders = append(s.Holders, Holder(one))
	}
	for i := range h.Line {
		s.Line = append(s.Line, waiterOf(&h.Line[i]))
	}
	return s
}

// Attach returns a handle for a lock that was obtained elsewhere, by another process or before a restart. The caller
// knows its keys and its token. The metadata is that of the first key, [Lock.Until] follows from the shortest remaining
// ttl, and [Lock.FenceToken] is 0. Attach does not change the lock. If a key has no expiry, Until has passed, because a
// renewal through another handle may give that key any ttl. Then Refresh the lock first.
//
// Attach blocks until Redis answers or ctx ends. It returns [ErrLockNotHeld] if the token holds none of keys; a
// [*LostError] if it holds only some of them; an error that matches [ErrNotObtained] if the guard of [WithGuard] is closed,
// because the keys may be those of a lock that has ended; an error that wraps [ErrInvalid] if an argument cannot be used;
// [ErrClosed] after Close; an error that wraps ctx.Err() if ctx ended first; and any error of Redis, wrapped.
func (c *Client) Attach(ctx context.Context, keys []string, token string) (*Lock, error) {
	keys = script.Unique(keys)
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	if token == "" {
		return nil, fault.Invalid("the token is empty; pass what Lock.Token returned")
	}
	if err := argument.Token(token); err != nil {
		return nil, err
	}
	if err := c.checkPlaces(keys, &Options{}); err != nil {
		return nil, err
	}
	at, err := c.placesFor(keys, nil, "", true)
	if err != nil {
		return nil, err
	}
	if at != nil {
		lock, err := at.Attach(ctx, keys, token)
		if err != nil {
			return nil, err
		}
		return &Lock{several: lock}, nil
	}
	found, err := c.one.Attach(ctx, keys, token)
	if err != nil {
		return nil, err
	}
	lock := new(Lock)
	lock.one.Find(c.one, keys, token, found)
	return lock, nil
}

// Waiter is one waiter in the line of a key; see [Client.Line]. Process is random, and says nothing about the host: that is
// in Metadata, if the caller has put it there, as with [ProcessMetadata].
type Waiter struct {
	Token    string    // of the lock for which it waits
	Metadata string    // the first 1,024 bytes of that lock's metadata
	Process  string    // names the process that waits: the same text for all its waiters, on all servers
	Since    time.Time // about when it came, by the server's clock; on one server, different for each waiter of a line
	Late     bool      // its process has been silent for a while, and it may be passed over soon

	Wants []string // all keys that it waits for; nil for more than 16, or than 4 if its caller holds nothing
	Limit int      // how many holders it would let this key have, itself included; 0 for no limit

	// Holds are the locks that its caller holds while it waits; see [Options.Queue]. Holds and Wants together have up to 1 KiB
	// of names.
	Holds     []Holding
	HoldsMore bool // and others
}

// Holding is a lock that a [Waiter] holds.
type Holding struct {
	Token string
	Keys  []string // at most 16
	More  bool     // and others
}

func waiterOf(w *script.Waiter) Waiter {
	found := Waiter{
		Token: w.Token, Metadata: w.Metadata, Process: w.Process, Since: time.UnixMicro(w.Ticket), Late: w.Late,
		Wants: w.Wants, Limit: w.Limit, HoldsMore: w.More,
	}
	for _, lock := range w.Holds {
		found.Holds = append(found.Holds, Holding(lock))
	}
	return found
}

// Line returns the waiters in line for the key, in the order in which they will be served; see [Options.Queue]. It omits
// waiters that are passed over, until their process is heard of again. It changes nothing, and its result may be out of
// date when it returns. On a quorum, it returns the waiters that a majority of the servers have in line. For a key that
// can have no line, it returns none.
//
// Line blocks until Redis answers or ctx ends. It returns an error that wraps [ErrInvalid] for a key that cannot be a
// lock, [ErrClosed] after Close, an error that wraps ctx.Err() if ctx ended first, and any error of Redis, wrapped.
func (c *Client) Line(ctx context.Context, key string) ([]Waiter, error) {
	if err := c.usable(ctx, []string{key}); err != nil {
		return nil, err
	}
	var found []script.Waiter
	var err error
	if c.quorum != nil {
		found, err = c.quorum.Line(ctx, key)
	} else {
		found, err = c.one.Waiters(ctx, key)
	}
	var waiters []Waiter
	for i := range found {
		waiters = append(waiters, waiterOf(&found[i]))
	}
	return waiters, err
}
