// Package adapter is what an adapter implements that lets redislock work through another client of Redis than go-redis.
// Users of such a client need only the adapter:
//
//	locks := redislock.New(redislock.Adapt(myadapter.Conn{Client: client}))
//
// The least that an adapter does is to send EVALSHA and EVAL, and to turn replies into the types of [Script]. With
// [Listener], waiters in line are woken at once, and handed their keys; without it, they look every few seconds. With
// [Router], calls for a node of a Cluster share round trips, as those for a single server always do.
//
// redislocktest.TestConn tells whether an adapter is right.
package adapter

import (
	"context"
	"errors"
)

// Conn is a client of Redis: one server, one behind Sentinel, or a Cluster. It is safe for concurrent use. Clients of
// redislock whose Conns are equal (==) share subscriptions, renewals and pipelines, so make Conn a pointer, or a struct of
// one.
type Conn interface {
	// Run sends scripts, in their order, and sets Reply and Err of each. Those for one server go in one round trip. It follows
	// the redirections of a Cluster. It never sends a script again: the library does that, because only the library knows
	// what a second execution means.
	//
	// Run returns when all scripts have a reply or an error. For how long it waits is up to the client, and a few seconds are
	// right: a call whose ctx ends does not wait for it. ctx has the values of that ctx, if Run gets one script, and never
	// ends itself.
	Run(ctx context.Context, scripts []*Script)

	// About says what the Conn is. The library asks once.
	About() About
}

// Script is one Lua script on its way to Redis.
type Script struct {
	// Source is the script, and SHA1 its hash, in hexadecimal.
	Source, SHA1 string
	// Whole says to send EVAL and the source; else EVALSHA and the hash. If Redis replies with NOSCRIPT, the library sends the
	// script again, whole.
	Whole bool

	// Keys are KEYS, and Args are ARGV. There is at least one key, and on a Cluster, all are in one slot.
	Keys, Args []string

	// Sent notes that the script is being written, so that a wait for a connection does not count. Call it right before you
	// write the script, or before you hand it to a client that does so soon: never later. If it returns an error, nobody wants
	// the script any more: do not write it, and set Err to that error. It returns none if Run has several scripts.
	Sent func() error

	// Reply is the reply of Redis: nil, an int64, a string, or a []any of these and of further []any.
	Reply any
	// Err is why there is no reply: a [ReplyError] if Redis has replied with an error, an error that wraps [ErrNotSent] or
	// [ErrClosed], or any other one. After any other one, and after Sent was called, the script may have been executed, or may
	// still be.
	Err error
}

// ReplyError is an error with which Redis has replied, such as "NOSCRIPT No matching script". Everything else counts as no
// reply, and is tried again: a reply that was lost, a connection that broke.
type ReplyError string

// Error returns the text of the reply.
func (e ReplyError) Error() string { return string(e) }

// RedisError marks the replies of Redis.
func (ReplyError) RedisError() {}

// ErrNotSent says that nothing of the script was written to a connection, and never will be, although Sent was called. So
// nothing has to be cleaned up. Wrap it, for example if the client could not connect.
var ErrNotSent = errors.New("not sent")

// ErrClosed says that the client was closed by its owner, so no call can succeed any more. Wrap it, or return it as it is.
var ErrClosed = errors.New("the Redis client is closed")

// About is what a Conn is.
type About struct {
	// Address is that of the server, or of one node, for errors. If it is empty, they name the type of the Conn.
	Address string

	// Reach says which keys one script can have.
	Reach Reach

	// Resends says that the client may send a script more than once, although it should not. Then a Release cannot tell
	// whether its first sending has released the lock.
	Resends bool
}

// Reach is which keys one script can have.
type Reach int

const (
	// Unknown says that the adapter does not know. The library treats it as one server, but does not rely on that.
	Unknown Reach = iota
	// OneServer says that all keys are on one server, and that subscriptions are there as well.
	OneServer
	// Slots says that it is a Cluster.
	Slots
)

// Listener is a Conn that receives messages. Without it, waiters in line try now and then.
type Listener interface {
	// Listen subscribes to a channel and calls message for each message, until ctx ends or the subscription breaks, and returns
	// the error. It calls open when Redis has confirmed the subscription. It calls neither function after it has returned, and
	// not concurrently. The library calls it again.
	//
	// Messages that are published on any node of a Cluster arrive. A subscription that has been silent for a second or two
	// should make sure that its connection is alive.
	Listen(ctx context.Context, channel string, open func(), message func(payload string)) error
}

// Router is a Conn that knows the nodes of a Cluster: see [Slots].
type Router interface {
	// Slots asks the Cluster which masters have which slots, by CLUSTER SHARDS or CLUSTER SLOTS. The library keeps the answer,
	// and asks again after errors: a master may have moved.
	Slots(ctx context.Context) ([]SlotRange, error)
}

// SlotRange are the slots from First to Last, which a master has. The addresses of one master are equal, and no two masters
// have the same.
type SlotRange struct {
	First, Last int // from 0 to 16383
	Address     string
}

// Greeter is a Conn that can ask its server whether it stands alone: see [OneServer]. Then calls for different locks share a
// script, which halves what many calls at a time cost.
type Greeter interface {
	// StandsAlone reports whether the server is neither a node of a Cluster nor a proxy that looks at the keys of scripts: it
	// replies to HELLO that its mode is standalone. The library asks until it gets no error that may pass.
	StandsAlone(ctx context.Context) (bool, error)
}
