package redislock

import (
	"maps"
	"slices"

	"github.com/redislock/redislock/internal/retry"
)

// Options say how to obtain a lock. A nil *Options and the zero value ask for one try, with a random token and no
// metadata. The library only reads Options, so any number of calls and goroutines can share one value.
type Options struct {
	// RetryStrategy says how often and how long to try again after a refusal and, on a quorum, after a try that decided
	// nothing. Each call starts it afresh. The default nil means one try. On one server, and across slots, an error of
	// Redis or the network ends the call, after its resends, even an error that may pass; Queue waits for the end of those.
	// With Queue, RetryStrategy only sets how often a waiter tries if no message can reach it.
	RetryStrategy RetryStrategy

	// Metadata is stored beside the token in every key of the lock, for anyone who inspects the key. It may hold any
	// bytes. [ProcessMetadata] makes a good default. In a Refresh, "" keeps what is stored.
	Metadata string

	// Token identifies the holder. The default "" means 16 random bytes, as 22 base64url characters. A call with the
	// token of an existing lock acquires the keys of that lock again and shares it. So choose a token that nobody else
	// can have, without white space and control characters. On a quorum of servers, and with AcrossSlots for keys without
	// a common hash tag, a Token is an error that wraps [ErrInvalid]. There, the library chooses the token, and
	// [Client.Attach] resumes or shares the lock.
	//
	// Do not call Obtain with the same token twice at the same time: the call that fails gives back keys on which the
	// other may rely. A call first waits for what earlier calls of this Client with the same token have left under way, as
	// far as it concerns the keys. That takes milliseconds or, after a lost reply, until the Redis client's ReadTimeout.
	// If the earlier calls only fail, the new call returns their error after a second. With Queue and a deadline, it goes
	// on waiting. After you abandon an obtain or a release with a custom token, wait for one ttl before you use that token
	// through another Client. Do not take the token of a lock whose token the library chose: a request for that lock may still
	// be under way.
	Token string

	// FenceKey names a counter on the same Redis. Each successful obtain mints a fencing token from it, a number higher
	// than every one before: see [Lock.FenceToken]. On a quorum of servers, two obtains that overlap in time can get the
	// same token, unless they have a key in common that they cannot share. The counter has no expiry. It belongs to the
	// resource, not to the lock, and cannot be one of its keys. On a Cluster and a Ring, it needs the hash tag of the keys.
	// The default "" mints no fencing token.
	FenceKey string

	// Queue makes a refused obtain wait in line until it is granted or ctx ends. Only ctx limits the wait. The default
	// false does not wait in line. The line is first come, first served, wherever keys overlap, across Clients, processes
	// and machines. A key with a waiter is not free: a later obtain is refused, with Queue or without, unless its token
	// already holds one of the keys. The library keeps the waiters of one Redis client live together, with one call a
	// second for all of their lines. If these calls stop, the waiters are passed over after 3 s, or later if they wait for
	// more than 5,000 keys. A key with a brace but no hash tag, and a key like a{a}, whose hash tag repeats the rest, is
	// [ErrInvalid] with Queue.
	//
	// If ctx has a deadline, errors of Redis or the network that may pass do not end the wait. The file docs/guarantees.md
	// lists them. If ctx ends the wait, the error wraps the last of them. If ctx has no deadline, they do not end the wait
	// after the first refusal. Before it, any error does, because a wrong address would make the call wait for ever; on a
	// quorum, an error that may pass does so after 2 s. Other errors always end the wait. The file docs/line.md says who is
	// served next, which clients are woken or handed the keys, and when the others try. A waiter that nothing wakes tries
	// after 30 s, or later where many wait.
	//
	// A caller may hold locks while it waits: those of whose kept contexts, from [Client.Do] or [Lock.KeepAlive], ctx is
	// derived, and those of the "redislock run" that the process runs under. The waiter names them in its entry in line,
	// and [Client.Line] shows them. If the holders of what it wants wait in line for these, directly or over others, none
	// of them would ever go on. Within three seconds, the obtain that came last of such a circle ends with a
	// [*DeadlockError], and the others go on when its caller releases what it holds. On a quorum, a majority of the servers
	// must agree. An entry names 16 keys of a lock, in 1 KiB of names, and a search reads 64 keys and 1,000 waiters of
	// each: it does not find larger circles, nor all of those that go over a waiter for more than 4 keys whose caller holds
	// nothing. It takes a caller for blocked while it waits. So if you wait in one goroutine, and another will release a
	// lock without waiting for that, wait with a ctx that does not have this lock. Callers who wait without Queue are in no
	// circle: their waits end by themselves.
	Queue bool

	// Shared names those keys of the call that others may hold at the same time, if they share them as well: as the readers
	// of a readers-writer lock. A key in neither Shared nor Permits is exclusive.
	//
	// Each holder sets a limit: how many holders its key may have, itself included. That is 1 for an exclusive key, the number
	// in Permits, and none for a shared key. While you hold a key, it has at most as many holders as you said, however many
	// ask for it later. A key that has several holders expires when the last of them ends, and each of them by itself: a
	// crashed reader does not live as long as the others renew. The holders of a key are no obstacle to each other, but they
	// come in turn: with Queue, a waiter blocks those behind it who want the key with another limit, and those with the same
	// one go together.
	//
	// A name that is not among the keys is an error that wraps [ErrInvalid], as is a key that can have no line: see Queue.
	// Fencing tokens order an exclusive holder before and after all others. Those of holders who hold a key at the same time
	// say nothing about their order. A call with a custom Token that has a key exclusively keeps it so. The other way round, it
	// is refused, and does not wait: with Queue or a RetryStrategy, the error wraps ErrInvalid. Two who share a key and both
	// wanted it alone would wait for each other for ever.
	Shared []string

	// Permits names those keys of the call that at most so many may hold at the same time, this lock included: from 1, which is
	// exclusive, to 1,000,000. If callers give different numbers for one key, each can rely on its own: the least of those who
	// hold it counts. Everything else is as for Shared. On a quorum of servers, a number above 1 is an error that wraps
	// [ErrInvalid], because two majorities may each grant so many.
	Permits map[string]int

	// AcrossSlots lets the keys of a lock be in different slots of a Cluster. The default false returns an error for such
	// keys. AcrossSlots makes no difference to keys of one slot, to one server, to a Ring, where the keys of a lock always
	// need one hash tag, and with a client type that does not say where keys are: see the file docs/redis.md.
	//
	// Redis cannot lock keys of several slots in one step. So the library locks those of each slot, and gives all back if
	// one refuses: all or none in the outcome. This costs a request for each slot, and a try that is refused may hold some
	// keys for a moment. FenceKey may then be in any slot. Without Queue, a retry asks one slot after the other, always in
	// the same order, so that callers cannot refuse each other for ever. Waiters are woken as Queue says, and no release
	// hands keys over to them. If keys of several slots are lost, the error that ends KeepAlive or Do may name those of
	// one slot only.
	AcrossSlots bool

	// Explain makes the error of a refusal say what blocks the call: it is a [*RefusedError], which matches
	// [ErrNotObtained] but is not equal to it. The library asks Redis right after the first refusal. If more tries follow,
	// and the last one is refused as well, it asks once more. It waits up to 250 ms for each answer, and up to 20 ms if ctx
	// has ended. The holder may change between the try and the question. The default false asks nothing.
	Explain bool
}

// only returns the options for some of the keys.
func (o *Options) only(keys []string) *Options {
	if o == nil || len(o.Shared)+len(o.Permits) == 0 {
		return o
	}
	known := make(map[string]bool, len(keys))
	for _, key := range keys {
		known[key] = true
	}
	some := *o
	some.Shared = slices.DeleteFunc(slices.Clone(o.Shared), func(key string) bool { return !known[key] })
	some.Permits = maps.Clone(o.Permits)
	maps.DeleteFunc(some.Permits, func(key string, _ int) bool { return !known[key] })
	return &some
}

// strategy returns the strategy for one call, or nil for a single try.
func (o *Options) strategy() retry.Strategy {
	if o == nil || o.RetryStrategy == nil || o.RetryStrategy == NoRetry() {
		return nil
	}
	return retry.Restart(o.RetryStrategy)
}
