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
	proxy    *Proxy
	number   int // of the client; 0 if it has none
	client   net.Conn
	cancel   context.CancelFunc // of the ctx of serve
	greeting bool               // all requests so far are part of the greeting, which passes; of readRequests

	inbox      *queue[*exchange] // nil is the end of the client's requests
	awaiting   *queue[*exchange] // forwarded, and not yet answered
	outbox     *queue[*exchange]
	serverGone chan struct{} // closed by readReplies when no more replies come

	mu     sync.Mutex // protects the fields below until serve has set them
	server halfCloser
	stop   context.CancelFunc // makes a black hole of the connection
}

// A halfCloser is a connection whose directions end one by one, as those of TCP
// and of memnet do.
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
	request  *request
	raw      []byte
	greeting bool // nothing happens to the request and its reply
	ruled    bool // a rule applies to both
	action   Action
	due      time.Time // of the request; not before it is it forwarded

	reply chan reply // holds the reply once it is there

	repeated *exchange // the same request once more; nil unless it was sent twice
}

type reply struct {
	raw    []byte
	action Action
	due    time.Time
}

func newExchange() *exchange { return &exchange{reply: make(chan reply, 1)} }

// answer sets the reply. It never blocks: an exchange is answered once.
func (c *conn) answer(e *exchange, raw []byte) {
	r := reply{raw: raw, due: time.Now()}
	if !e.greeting {
		var latency time.Duration
		r.action, latency = c.proxy.meet(c.number, e)
		r.due = r.due.Add(max(latency, r.action.replyDelay))
	}
	e.reply <- r
}

func (e *exchange) subscribes() bool {
	return strings.HasSuffix(strings.ToLower(e.request.args[0]), "subscribe")
}

// newConn returns a conn. The caller holds p.mu.
func newConn(p *Proxy, number int, client net.Conn, cancel context.CancelFunc) *conn {
	return &conn{
		proxy:      p,
		number:     number,
		client:     client,
		cancel:     cancel,
		greeting:   p.passGreetings,
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
	c.mu.Lock()
	c.stop = stop
	c.mu.Unlock()
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

// cut closes both sides at once and lets all goroutines end. It may be called
// by any goroutine and more than once.
func (c *conn) cut() {
	c.cancel()
	c.client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		c.server.Close()
	}
}

// ForsakeAll makes a black hole of every connection that there is, as when a
// firewall has forgotten them all. New connections work.
func (p *Proxy) ForsakeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.forsake()
	}
}

// forsake makes a black hole of the connection, without a request that begins it.
func (c *conn) forsake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
	}
}

// readRequests ends when the client closes its connection, or we do. In a black
// hole it reads on: to count, and to see that end.
func (c *conn) readRequests(blackHoled func()) {
	var (
		r    = bufio.NewReader(c.client)
		hole = false
		met  = false // something has come after the greeting
	)
	for {
		raw, args, err := readRequest(r)
		if err != nil {
			c.inbox.push(nil)
			return
		}
		if !met && !isGreeting(args) {
			met = true
			if strings.EqualFold(args[0], "PING") && c.proxy.leavesQuestions() {
				hole = true
			}
		}
		c.greeting = c.greeting && isGreeting(args)
		e := newExchange()
		e.raw, e.request, e.greeting = raw, &request{args: args}, c.greeting
		if hole || e.greeting {
			c.proxy.record(e.request)
		}
		if hole {
			continue
		}
		e.due = time.Now()
		if !e.greeting {
			latency := c.proxy.admit(c.number, e)
			e.due = e.due.Add(max(latency, e.action.requestDelay))
			if e.action.requestUntil.After(e.due) {
				e.due = e.action.requestUntil
			}
		}
		switch e.action.kind {
		case blackHole:
			hole = true
			blackHoled()
			continue
		case cutClient:
			c.client.Close()
		}
		c.inbox.push(e)
	}
}

// writeRequests ends after the last request, when the server is gone, or when
// flow is done.
func (c *conn) writeRequests(flow context.Context) {
	for {
		e, ok := c.inbox.pop(flow, nil)
		if !ok {
			return
		}
		if e == nil {
			// Only half a close: closed whole, with replies unread, the
			// connection would be reset, and the server could lose requests
			// that it has not read yet.
			_ = c.server.CloseWrite()
			return
		}

		if !c.mayPass(flow, e.due, e.greeting) {
			return
		}
		switch e.action.kind {
		case refuseReply:
			c.answer(e, []byte("-"+e.action.text+"\r\n"))
			c.outbox.push(e)
			continue
		case cutAfterRequestBytes:
			n := min(e.action.bytes, len(e.raw))
			c.proxy.setForwarded(e.request, n == len(e.raw))
			c.client.Close() // first, or a reply to a whole request might get through
			_, _ = c.server.Write(e.raw[:n])
			_ = c.server.CloseWrite() // half, as above
			return
		}

		// Before the server can answer, the reply must be awaited and the
		// request counted: the client may look at the counter next.
		raw := e.raw
		c.awaiting.push(e)
		if e.action.kind == repeatRequest {
			e.repeated = newExchange()
			e.repeated.request, e.repeated.ruled = e.request, true
			c.awaiting.push(e.repeated)
			raw = slices.Concat(raw, raw)
		}
		c.outbox.push(e)
		c.proxy.setForwarded(e.request, true)
		if _, err := c.server.Write(raw); err != nil {
			c.proxy.setForwarded(e.request, false)
			return
		}
		if e.action.kind == repeatRequestAfter {
			c.proxy.running.Go(func() { c.proxy.repeat(raw, e.action.after) })
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
		c.answer(e, value)
	}
}

// writeReplies ends when the client or the server is gone, when flow is done,
// or at a swallowed reply, after which the client hears nothing more.
func (c *conn) writeReplies(flow context.Context) {
	for {
		e, ok := c.outbox.pop(flow, c.serverGone)
		if ok && e.action.kind == swallowReply { // no reply is waited for
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

		if !c.mayPass(flow, r.due, e.greeting) {
			return
		}
		switch r.action.kind {
		case swallowReply:
			return
		case cutAfterReplyBytes:
			n := min(r.action.bytes, len(r.raw))
			_, _ = c.client.Write(r.raw[:n])
			c.cut()
			return
		}
		if _, err := c.client.Write(r.raw); err != nil {
			return
		}
	}
}

// await waits for the reply to e. It returns false if flow is done or the
// server is gone without a reply.
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

// mayPass waits until a message is due, and until the proxy does not hang, which
// is nothing to a greeting. It returns false as soon as flow is done.
func (c *conn) mayPass(flow context.Context, due time.Time, greeting bool) bool {
	return sleepUntil(flow, due) && (greeting || c.proxy.awaitResume(flow))
}

// sleepUntil sleeps until t and returns true, or returns false as soon as ctx
// is done.
func sleepUntil(ctx context.Context, t time.Time) bool {
	left := time.Until(t)
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// LeaveQuestions makes the proxy leave a PING without an answer if it is the
// first request on its connection after the greeting. So a client that asks on a
// new connection whether the server is there believes that the server hangs.
func (p *Proxy) LeaveQuestions(leave bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.questionsLeft = leave
}

func (p *Proxy) leavesQuestions() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.questionsLeft
}
