// Package foreign lets package transport send scripts through an adapter.Conn. It knows nothing about locks.
package foreign

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/adapter"
	"github.com/redislock/redislock/internal/transport"
)

// conn is a client behind an adapter.
type conn struct {
	adapter.Conn

	about    adapter.About
	listener adapter.Listener // nil if it is none
	router   adapter.Router   // nil if it is none
	greeter  adapter.Greeter  // nil if it is none

	only   *node // if all keys are on one server
	routes routes

	found    atomic.Int32 // what the server has said of itself: a transport.Standing
	greeting atomic.Bool  // it is being asked
}

// resends is how often a call that fails is sent again.
const resends = 3

// New returns the Conn of an adapter, or an error if it cannot be used.
func New(c adapter.Conn) (transport.Conn, error) {
	if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("the adapter is nil")
	}
	made := &conn{Conn: c, about: c.About()}
	made.only = &node{conn: made, address: made.about.Address}
	made.listener, _ = c.(adapter.Listener)
	made.router, _ = c.(adapter.Router)
	made.greeter, _ = c.(adapter.Greeter)
	if made.about.Reach < adapter.Unknown || made.about.Reach > adapter.Slots {
		return nil, fmt.Errorf("a %T says that its Reach is %d", c, made.about.Reach)
	}
	return made, nil
}

func (c *conn) About() transport.About {
	about := transport.About{
		Name: c.about.Address, Shares: c.about.Reach != adapter.Unknown, Listens: c.listener != nil,
		Resends: resends, Opaque: c.about.Resends,
	}
	switch c.about.Reach {
	case adapter.OneServer:
		about.Reach = transport.OneServer
	case adapter.Slots:
		about.Reach = transport.Slots
	}
	if about.Name == "" {
		about.Name = fmt.Sprintf("%T", c.Conn)
	}
	return about
}

func (c *conn) Send(ctx context.Context, call *transport.Call, whole bool) (any, error) {
	s := newSending(call.Script, whole, call.Depart, []*transport.Call{call})
	s.script.Keys, s.script.Args = call.Strings()
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx) // a client that returns at the end of ctx knows nothing of what it has written
	}
	c.run(ctx, []*sending{s})
	return s.result()
}

// run runs scripts, except those that no node of a Cluster would run.
func (c *conn) run(ctx context.Context, all []*sending) {
	scripts := make([]*adapter.Script, 0, len(all))
	for _, s := range all {
		if c.about.Reach == adapter.Slots && !inOneSlot(s.script.Keys) {
			s.script.Err = adapter.ReplyError("CROSSSLOT Keys in request don't hash to the same slot") // as Redis says it
			continue
		}
		scripts = append(scripts, &s.script)
	}
	if len(scripts) > 0 {
		c.Run(ctx, scripts)
	}
}

func inOneSlot(keys []string) bool {
	for _, key := range keys[1:] {
		if transport.Slot(key) != transport.Slot(keys[0]) {
			return false
		}
	}
	return true
}

// sending is one script on its way.
type sending struct {
	script  adapter.Script
	calls   []*transport.Call // that it is for
	depart  func() error
	refused error // by depart
}

// newSending returns one without Keys and Args.
func newSending(of *transport.Script, whole bool, depart func() error, calls []*transport.Call) *sending {
	s := &sending{calls: calls, depart: depart}
	s.script = adapter.Script{Whole: whole, Sent: s.sent}
	s.script.Source, s.script.SHA1 = of.Text()
	return s
}

func (s *sending) sent() error {
	s.refused = s.depart()
	return s.refused
}

// errNothing is the error of a script to which the adapter has given no end.
var errNothing = errors.New("the adapter has set neither Reply nor Err")

// result returns what has become of the script, as transport wants it.
func (s *sending) result() (any, error) {
	reply, err := s.script.Reply, s.script.Err
	switch {
	case err == nil && reply == nil: // no script of the library replies with nil
		return nil, errNothing
	case err == nil:
		return reply, nil
	case errors.Is(err, adapter.ErrNotSent), transport.RefusesLogin(err): // or the client was refused when it connected again
		for _, call := range s.calls {
			call.TakeBack()
		}
	}
	switch {
	case errors.Is(err, adapter.ErrClosed):
		return nil, &transport.ClosedError{Err: err}
	case s.refused == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return nil, errors.New("the client gave up: " + err.Error()) // at the end of a ctx of its own, not of the caller's
	}
	return nil, err
}

func (c *conn) Node(key string) (transport.Node, error) {
	switch {
	case c.about.Reach == adapter.OneServer:
		return c.only, nil
	case c.router == nil:
		return nil, nil
	}
	if n := c.routes.node(c, key); n != nil {
		return n, nil
	}
	return nil, nil // each call goes by itself until the library knows the nodes
}

func (c *conn) Reload(context.Context) {
	if c.router != nil {
		c.routes.reload(c)
	}
}

// relisten is how long a subscription has to last so that the next one follows at once.
const relisten = time.Second

func (c *conn) Listen(ctx context.Context, channel string, open func(is bool), message func(payload string)) error {
	for {
		began := time.Now()
		err := c.listener.Listen(ctx, channel, func() { open(true) }, message)
		if ctx.Err() != nil || transport.IsAnswer(err) || time.Since(began) < relisten {
			return err
		}
		open(false)
	}
}

// node is one server. There is one for each address, so two are equal if they are the same.
type node struct {
	conn    *conn
	address string
	gone    atomic.Bool // it has no slots any more
}

func (n *node) Address() string { return n.address }

func (n *node) Pipeline(_ context.Context, requests []transport.Request, greet bool) (transport.Standing, error) {
	all := make([]*sending, len(requests))
	for i := range requests {
		q := &requests[i]
		s := newSending(q.Script, q.Whole, q.Depart, q.Calls)
		s.script.Keys, s.script.Args = q.Strings()
		all[i] = s
	}
	n.conn.run(context.Background(), all)
	var first error
	for i, s := range all {
		q := &requests[i]
		if q.Reply, q.Err = s.result(); first == nil {
			first = q.Err
		}
	}
	if !greet {
		return transport.StandingUnknown, first
	}
	return n.conn.standing(), first
}

// standing returns what the server has said of itself. It asks in the background, so that nobody waits for that.
func (c *conn) standing() transport.Standing {
	if c.greeter == nil {
		return transport.StandsInGroup
	}
	found := transport.Standing(c.found.Load())
	if found == transport.StandingUnknown && c.greeting.CompareAndSwap(false, true) {
		go func() { // ends when the client has an answer or gives up
			defer c.greeting.Store(false)
			defer func() { _ = recover() }()
			switch alone, err := c.greeter.StandsAlone(context.Background()); {
			case alone && err == nil:
				c.found.Store(int32(transport.StandsAlone))
			case err == nil, transport.IsFinal(err):
				c.found.Store(int32(transport.StandsInGroup))
			}
		}()
	}
	return found
}

// AskAnew finds out nothing: an adapter makes no connection on demand. Its client has to notice connections that have died.
func (n *node) AskAnew(time.Duration) (took time.Duration, answered bool) { return 0, false }

// PingIdle is not called, because AskAnew never has an answer.
func (n *node) PingIdle(time.Duration) {}

// Weak returns the node itself: the Conn keeps it, and the Redis the Conn.
func (n *node) Weak() transport.WeakNode { return n }

// IsGone reports whether the node has left the Cluster, or has no slots any more.
func (n *node) IsGone() bool { return n.gone.Load() }
