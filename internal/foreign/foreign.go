// Package foreign lets package transport send scripts through an adapter.Conn. It knows nothing about locks.
package foreign

import (
	"context"
	"errors"
	"fmt"
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
}

// resends is how often a call that fails is sent again.
const resends = 3

// New returns the Conn of an adapter, or an error if it cannot be used.
func New(c adapter.Conn) (transport.Conn, error) {
	if c == nil {
		return nil, errors.New("the adapter is nil")
	}
	made := &conn{Conn: c, about: c.About()}
	made.only = &node{made, made.about.Address}
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
	s := &adapter.Script{Whole: whole, Sent: call.Depart}
	s.Source, s.SHA1 = call.Script.Text()
	s.Keys, s.Args = call.Strings()
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx) // a client that returns at the end of ctx knows nothing of what it has written
	}
	c.Run(ctx, []*adapter.Script{s})
	if errors.Is(s.Err, adapter.ErrNotSent) {
		call.TakeBack()
	}
	return s.Reply, named(s.Err)
}

// named returns an error in such a form that transport knows it.
func named(err error) error {
	if err != nil && errors.Is(err, adapter.ErrClosed) {
		return &transport.ClosedError{Err: err}
	}
	return err
}

func (c *conn) Node(key string) (transport.Node, error) {
	switch {
	case c.about.Reach == adapter.OneServer:
		return c.only, nil
	case c.router == nil:
		return nil, nil
	}
	return c.routes.node(c, key)
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
}

func (n *node) Address() string { return n.address }

func (n *node) Pipeline(_ context.Context, requests []transport.Request, greet bool) (transport.Standing, error) {
	scripts := make([]*adapter.Script, len(requests))
	for i := range requests {
		q := &requests[i]
		s := &adapter.Script{Whole: q.Whole, Sent: q.Depart}
		s.Source, s.SHA1 = q.Script.Text()
		s.Keys, s.Args = q.Strings()
		scripts[i] = s
	}
	n.conn.Run(context.Background(), scripts)
	var first error
	for i, s := range scripts {
		q := &requests[i]
		if q.Reply, q.Err = s.Reply, named(s.Err); errors.Is(s.Err, adapter.ErrNotSent) {
			for _, call := range q.Calls {
				call.TakeBack()
			}
		}
		if first == nil {
			first = q.Err
		}
	}
	if !greet {
		return transport.StandingUnknown, first
	}
	return n.conn.standing(), first
}

// standing asks the server whether it stands alone.
func (c *conn) standing() transport.Standing {
	if c.greeter == nil {
		return transport.StandsInGroup
	}
	switch alone, err := c.greeter.StandsAlone(context.Background()); {
	case alone && err == nil:
		return transport.StandsAlone
	case err == nil, transport.IsFinal(err):
		return transport.StandsInGroup
	}
	return transport.StandingUnknown
}

// AskAnew finds out nothing: an adapter makes no connection on demand. Its client has to notice connections that have died.
func (n *node) AskAnew(time.Duration) (took time.Duration, answered bool) { return 0, false }

// PingIdle is not called, because AskAnew never has an answer.
func (n *node) PingIdle(time.Duration) {}

// Weak returns the node itself: the Conn keeps it, and the Redis the Conn.
func (n *node) Weak() transport.WeakNode { return n }

// IsGone reports false: nodes last as long as their Conn.
func (n *node) IsGone() bool { return false }
