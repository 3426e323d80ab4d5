package faultproxy

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// A conn is one connection of a client and the one to the server that belongs
// to it. Four goroutines serve it, a reader and a writer for each direction, so
// that a delay in one holds up none of the others:
//
//	client → readRequests → inbox → writeRequests → server
//	client ← writeReplies ← outbox ← readReplies  ← server
//
// The readers end with their connections, and the writers with the readers.
// A request whose reply is not there yet is both in the outbox, which keeps
// replies in the order of the requests, and in awaiting.
type conn struct {
	proxy  *Proxy
	client net.Conn
	cancel context.CancelFunc // of the ctx of serve

	inbox      *queue[*exchange] // nil is the end of the client's requests
	awaiting   *queue[*exchange] // forwarded, and not yet answered
	outbox     *queue[*exchange]
	serverGone chan struct{} // closed by readReplies when no more replies come

	mu     sync.Mutex // protects server until serve has set it
	server halfCloser
}

// A halfCloser is a connection whose directions end one by one, as those of TCP and of memnet do.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// A request is what the proxy remembers of a request for its counters.
type request struct {
	args []string

	forwarded bool // protected by Proxy.mu
}

// An exchange is a request on its way through the proxy, and its reply; or,
// with no more than the reply, a value that the server sent unasked.
type exchange struct {
	request *request
	raw     []byte
	arrived time.Time
	action  Action

	reply chan reply // holds the reply once it is there

	repeated *exchange // the same request once more; nil unless it was sent twice
}

type reply struct {
	raw     []byte
	arrived time.Time
}

func newExchange() *exchange {
	return &exchange{arrived: time.Now(), reply: make(chan reply, 1)}
}

// answer sets the reply. It never blocks: an exchange is answered once.
func (e *exchange) answer(raw []byte) { e.reply <- reply{raw, time.Now()} }

func (e *exchange) subscribes() bool {
	return strings.HasSuffix(strings.ToLower(e.request.args[0]), "subscribe")
}

func newConn(p *Proxy, client net.Conn, cancel context.CancelFunc) *conn {
	return &conn{
		proxy:      p,
		client:     client,
		cancel:     cancel,
		inbox:      newQueue[*exchange](),
		awaiting:   newQueue[*exchange](),
		outbox:     newQueue[*exchange](),
		serverGone: make(chan struct{}),
	}
}

// serve dials the server after delay and forwards until both sides have ended
// or cut ends them. Its goroutines have ended when it returns.
func (c *conn) serve(ctx context.Context, delay time.Duration) {
	defer c.cut()
	if !sleepUntil(ctx, time.Now().Add(delay)) || !c.dial(ctx) {
		return
	}
	// flow is done when nothing more may pass: after a cut, or in a black hole.
	flow, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { c.readRequests(stop) })
	wg.Go(func() { c.writeRequests(flow) })
	wg.Go(c.readReplies)
	wg.Go(func() { c.writeReplies(flow) })
	wg.Wait()
}

// dial reports whether it has connected to the server.
func (c *conn) dial(ctx context.Context) bool {
	server, err := c.proxy.dial(ctx, "tcp", c.proxy.target)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil { // cut before it could close this one
		server.Close()
		return false
	}
	c.server = server.(halfCloser)
	return true
}

// cut closes both sides at once and lets all goroutines end. It may be called by any goroutine and more than once.
func (c *conn) cut() {
	c.cancel()
	c.client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		c.server.Close()
	}
}

// readRequests ends when the client closes its connection, or we do. In a black
// hole it reads on: to count, and to see that end.
func (c *conn) readRequests(blackHoled func()) {
	var (
		r    = bufio.NewReader(c.client)
		hole = false
	)
	for {
		raw, args, err := readRequest(r)
		if err != nil {
			c.inbox.push(nil)
			return
		}
		e := newExchange()
		e.raw, e.request = raw, &request{args: args}
		if hole {
			c.proxy.record(e.request)
			continue
		}
		e.action = c.proxy.admit(e.request)
		if e.action.kind == blackHole {
			hole = true
			blackHoled()
			continue
		}
		c.inbox.push(e)
	}
}

// writeRequests ends after the last request, when the server is gone, or when flow is done.
func (c *conn) writeRequests(flow context.Context) {
	for {
		e, ok := c.inbox.pop(flow, nil)
		if !ok {
			return
		}
		if e == nil {
			// Only half a close: closed whole, with replies unread, the connection would be reset, and the server could lose
			// requests that it has not read yet.
			_ = c.server.CloseWrite()
			return
		}

		switch e.action.kind {
		case refuseReply:
			e.answer([]byte("-" + e.action.text + "\r\n"))
			c.outbox.push(e)
			continue
		case cutAfterRequestBytes:
			n := min(e.action.bytes, len(e.raw))
			c.proxy.setForwarded(e.request, n == len(e.raw))
			c.client.Close() // first, or a reply to a whole request might get through
			_, _ = c.server.Write(e.raw[:n])
			_ = c.server.CloseWrite() // half, as above
			return
		case delayRequest:
			if !sleepUntil(flow, e.arrived.Add(e.action.delay)) {
				return
			}
		}

		// Before the server can answer, the reply must be awaited and the
		// request counted: the client may look at the counter next.
		raw := e.raw
		c.awaiting.push(e)
		if e.action.kind == repeatRequest {
			e.repeated = newExchange()
			e.repeated.request = e.request
			c.awaiting.push(e.repeated)
			raw = slices.Concat(raw, raw)
		}
		c.outbox.push(e)
		c.proxy.setForwarded(e.request, true)
		if _, err := c.server.Write(raw); err != nil {
			c.proxy.setForwarded(e.request, false)
			return
		}
	}
}

// readReplies ends when the server closes its connection, or we do.
func (c *conn) readReplies() {
	defer close(c.serverGone)
	r := bufio.NewReader(c.server)
	for {
		value, err := readValue(r)
		if err != nil {
			return
		}
		e, ok := c.awaiting.peek()
		if ok && (value[0] != '>' || e.subscribes() && confirmsSubscription(value)) {
			c.awaiting.tryPop()
		} else {
			e = newExchange()
			c.outbox.push(e)
		}
		e.answer(value)
	}
}

// writeReplies ends when the client or the server is gone, when flow is done,
// or at a swallowed reply, after which the client hears nothing more.
func (c *conn) writeReplies(flow context.Context) {
	for {
		e, ok := c.outbox.pop(flow, c.serverGone)
		if ok && e.action.kind == swallowReply {
			return
		}
		var r reply
		if ok {
			r, ok = c.await(flow, e)
		}
		if ok && e.repeated != nil {
			_, ok = c.await(flow, e.repeated)
		}
		if !ok {
			if flow.Err() == nil { // the server is gone: pass that on
				c.client.Close()
			}
			return
		}

		switch e.action.kind {
		case cutAfterReplyBytes:
			n := min(e.action.bytes, len(r.raw))
			_, _ = c.client.Write(r.raw[:n])
			c.cut()
			return
		case delayReply:
			if !sleepUntil(flow, r.arrived.Add(e.action.delay)) {
				return
			}
		}
		if _, err := c.client.Write(r.raw); err != nil {
			return
		}
	}
}

// await waits for the reply to e. It returns false if flow is done or the server is gone without a reply.
func (c *conn) await(flow context.Context, e *exchange) (r reply, ok bool) {
	select {
	case r = <-e.reply:
	case <-flow.Done():
	case <-c.serverGone:
		select {
		case r = <-e.reply: // it came just before
		default:
			return r, false
		}
	}
	return r, flow.Err() == nil
}

// sleepUntil sleeps until t and returns true, or returns false as soon as ctx is done.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
