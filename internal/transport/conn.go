package transport

import (
	"context"
	"time"
)

// Conn is a client of Redis, as this package needs it: it has connections, sends scripts and receives messages. It is safe
// for concurrent use.
type Conn interface {
	// About says what the client is.
	About() About

	// Send sends a call by itself, once, by the hash of its script or, if whole is true, with the source, to whatever server
	// the client chooses. ctx is that of the call; Send need not return when that ends. Right before the call is written, Send
	// asks it for that, by Call.Depart or Call.Write. It sets Call.Rewritten if it has sent something else.
	Send(ctx context.Context, c *Call, whole bool) (reply any, err error)

	// Node returns the server that has a key; nil if that is not known. On a Cluster it may ask the servers.
	Node(key string) (Node, error)

	// Reload makes a Cluster look again which node has which slots.
	Reload(ctx context.Context)

	// Listen subscribes to a channel, until ctx ends or the subscription is of no use any more, and calls message for each
	// message. It calls open with true when there is a subscription, and with false when that has broken and Listen makes
	// another one.
	Listen(ctx context.Context, channel string, open func(is bool), message func(payload string)) error
}

// About is what a Conn is. It never changes.
type About struct {
	Name    string // for errors: the address of the server or of one node, or the type of the client
	Reach   Reach
	Shares  bool // calls may share round trips to a Node
	Listens bool // what scripts publish arrives; else Listen is not called
	Resends int  // how often a call that fails is to be sent again

	// Opaque says that the client resends calls by itself, and does not say when it writes them.
	Opaque bool
}

// Reach is what one script can reach.
type Reach int

// What one script can reach.
const (
	Unknown   Reach = iota // the client does not say; the library treats it as one server, but does not rely on that
	OneServer              // all keys, and the subscriptions are there as well
	Slots                  // the keys of one slot of a Cluster; with others, it fails
	Shards                 // the keys of one shard of a Ring; with others, it goes to the shard of the first
)

// Node is one server. Two are equal if calls to them go through the same connections.
type Node interface {
	Address() string

	// Pipeline sends requests in one round trip, in order, each once, and sets Reply and Err of each. Like Conn.Send, it asks
	// each call right before it is written. It waits for a connection until ctx ends, and then for the replies as long as the
	// client does. It returns the first error. If greet is true, it also asks the server whether it stands alone.
	Pipeline(ctx context.Context, requests []Request, greet bool) (Standing, error)

	// AskAnew sends a PING on a connection that is new and used for nothing else. It returns how long the answer took, and
	// whether one came within patience.
	AskAnew(patience time.Duration) (took time.Duration, answered bool)
	// PingIdle sends a PING on each idle connection. It returns when nobody can take one of these any more before it has
	// answered. Those that do not answer within patience are closed.
	PingIdle(patience time.Duration)

	Weak() WeakNode
}

// WeakNode is a Node that does not keep its connections alive. Two are equal if their Nodes are.
type WeakNode interface{ IsGone() bool }

// Standing is what a server says about itself.
type Standing int32

// What a server says about itself.
const (
	StandingUnknown Standing = iota
	StandsAlone              // one script may have the keys of several locks
	StandsInGroup            // it is a node of a Cluster, a proxy, or says nothing
)
