// Package faultproxy is a proxy that breaks the traffic between a Redis
// client and a Redis server on purpose, for tests.
//
// A [Proxy] finds the boundaries of requests and replies, and knows which reply
// belongs to which request, so that a fault is aimed at a command and not at
// bytes or times: "execute the next EVALSHA, and lose its reply".
//
//	proxy, err := faultproxy.New(server.Addr())
//	…
//	fault := proxy.Add(faultproxy.Rule{
//		Match:  faultproxy.Command("evalsha", "eval"),
//		Times:  1,
//		Action: faultproxy.SwallowReply(),
//	})
//	// use a client of proxy.Addr()
//	<-fault.Hit()
//
// What happens to a message is said in three ways. A [Rule] picks requests, and
// has an [Action] for them and their replies. [Proxy.Decide] sets a function that
// chooses an Action for each message that no rule applies to. [Proxy.SetLatency]
// sets how long each message takes on its way. Beside that, the whole proxy can
// refuse connections, cut them, or hang.
//
// Everything that waits in a proxy waits for the clock or for another goroutine.
// So a proxy of [memnet] connections runs in a bubble of testing/synctest.
//
// # Limits
//
// Each request is taken to have one reply. That holds for RESP2 and RESP3, in
// pipelines, in transactions and for blocking commands, and goes wrong for
// MONITOR, SYNC and CLIENT REPLY. A value that answers no request, such as a
// published message, passes through; the reply to a SUBSCRIBE is its first
// confirmation. TLS is not supported.
package faultproxy

import (
	"bufio"
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redislock/redislock/internal/testing/memnet"
)

// A listener is one of TCP or of memnet.
type listener interface {
	Accept() (net.Conn, error)
	Close() error
}

// A Proxy forwards connections to one Redis server. It is safe for concurrent
// use.
type Proxy struct {
	target   string
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	listener listener // nil if clients only come by Dialer
	addr     string   // of the listener

	// running counts accept, which ends when Close closes the listener, the
	// connections, which end by themselves or when Close cuts them, and the
	// requests that are repeated later.
	running sync.WaitGroup
	ctx     context.Context // ended by Close
	end     context.CancelFunc

	mu        sync.Mutex // protects what follows, and the fields of Fault and request that say so
	closed    bool
	refuse    bool
	forgetful bool
	dialDelay time.Duration
	hangs     chan struct{} // closed by Resume; nil unless the proxy hangs
	latency   func() time.Duration
	decide    func(Message) Action
	rewrite   func(m Message, raw []byte)

	passGreetings bool
	questionsLeft bool // see LeaveQuestions

	conns  map[*conn]struct{}
	faults []*Fault // in force, oldest first
	seen   []*request
}

// New starts a proxy for the Redis server at target, a host:port, on a free
// port of 127.0.0.1. The server does not need to be there yet: each connection
// to the proxy dials it anew, and is closed if that fails. For an address of
// memnet, the proxy has one as well, and uses no sockets.
func New(target string) (*Proxy, error) {
	if memnet.Has(target) {
		l := memnet.Listen()
		p := proxyVia(memnet.Dial)
		p.target, p.listener, p.addr = target, l, l.Addr()
		p.running.Go(p.accept)
		return p, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := proxyVia((&net.Dialer{}).DialContext)
	p.target, p.listener, p.addr = target, l, l.Addr().String()
	p.running.Go(p.accept)
	return p, nil
}

// NewInMemory returns a proxy for the server that dial connects to. It listens
// nowhere: its clients use its Dialer. dial must return a connection whose two
// directions can be closed one by one, such as one of memnet.
func NewInMemory(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Proxy {
	return proxyVia(dial)
}

func proxyVia(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Proxy {
	p := &Proxy{dial: dial, conns: make(map[*conn]struct{})}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Dialer returns a Dialer for a Redis client, which connects it to the proxy in
// memory. The number tells its requests apart from those of others: see
// Rule.Client and Message. It ignores the network and the address, and fails with
// ECONNREFUSED while the proxy refuses connections or is closed.
func (p *Proxy) Dialer(client int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := memnet.Pipe()
		if !p.open(far, client) {
			return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
		}
		return near, nil
	}
}

// Addr returns the address of the proxy, as host:port.
func (p *Proxy) Addr() string { return p.addr }

// Close stops listening, cuts every connection as CutAll does and waits until
// all goroutines of the proxy have ended. The second and later calls do nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	wasClosed := p.closed
	p.closed = true
	p.mu.Unlock()
	if wasClosed {
		return nil
	}
	var err error
	if p.listener != nil {
		err = p.listener.Close()
	}
	p.end()
	p.CutAll()
	p.running.Wait()
	return err
}

// RefuseConnections makes the proxy close each new connection at once, or, with
// false, serve new connections again. Connections that exist stay as they are.
func (p *Proxy) RefuseConnections(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// DelayDial makes the proxy forward and answer nothing on a new connection for
// d after it has accepted it. A d of 0 ends that for the connections to come.
func (p *Proxy) DelayDial(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialDelay = d
}

// Hang makes the proxy hold all messages back, until Resume: those that are on
// their way already, and those that arrive later.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs == nil {
		p.hangs = make(chan struct{})
	}
}

// Resume ends a Hang. What was held back is forwarded.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs != nil {
		close(p.hangs)
		p.hangs = nil
	}
}

// awaitResume waits until the proxy does not hang. It returns false as soon as
// ctx is done.
func (p *Proxy) awaitResume(ctx context.Context) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		hangs := p.hangs
		p.mu.Unlock()
		if hangs == nil {
			return true
		}
		select {
		case <-hangs:
		case <-ctx.Done():
		}
	}
	return false
}

// PassGreetings makes the proxy forward what a Redis client sends first on each
// new connection (HELLO, CLIENT and the like), and the replies to it, at once,
// whatever else is in force, even if the proxy hangs. go-redis connects a
// subscription while it holds a mutex that others wait for. In a bubble of
// testing/synctest, the clock would stand still as long as the greeting takes.
func (p *Proxy) PassGreetings() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passGreetings = true
}

// SetLatency makes every message take latency() on its way, or as long as an
// Action says, if that is longer. Messages stay in order. nil is for no latency.
func (p *Proxy) SetLatency(latency func() time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = latency
}

// Decide makes the proxy ask decide about each request, each reply and each value
// that the server sends unasked, unless a rule applies to it. Of the Action for a
// request, only what concerns the request is done, and of one for a reply, only
// what concerns the reply. The proxy calls decide for one message at a time;
// decide must not keep its Args or use the proxy. nil ends that.
func (p *Proxy) Decide(decide func(Message) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// RewriteRequests makes the proxy call rewrite with each request, as it is
// encoded. rewrite may change bytes, but not their number. Rules and Decide see
// the request as it was before.
func (p *Proxy) RewriteRequests(rewrite func(m Message, raw []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = rewrite
}

// CutAll closes every connection on both sides. What the proxy still holds of
// them is lost, delayed requests included; the server may or may not execute
// what was forwarded just before.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.cut()
	}
}

// Add puts a rule into force for requests that arrive from now on, behind the
// rules that are in force already: a request is dealt with by the first rule
// that matches it.
func (p *Proxy) Add(rule Rule) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &Fault{proxy: p, rule: rule, hit: make(chan struct{})}
	p.faults = append(p.faults, f)
	return f
}

// RemoveAll takes all rules out of force, as Fault.Remove does with one.
func (p *Proxy) RemoveAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// Requests returns how many requests that match have reached the proxy since it
// started, whatever became of them. A nil match counts every request.
func (p *Proxy) Requests(match func(args []string) bool) int {
	return p.count(func(r *request) bool { return matches(match, r.args) })
}

// Executed returns how many requests that match the proxy has forwarded whole
// to the server. The number includes a request before its reply reaches the
// client. A nil match counts every request.
func (p *Proxy) Executed(match func(args []string) bool) int {
	return p.count(func(r *request) bool { return r.forwarded && matches(match, r.args) })
}

func (p *Proxy) count(match func(*request) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.seen {
		if match(r) {
			n++
		}
	}
	return n
}

// Forget makes the proxy remember no requests from now on, so that a long run does not fill the memory. Requests and
// Executed then count only what came before.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetful = true
}

// remember records a request. The caller holds p.mu.
func (p *Proxy) remember(r *request) {
	if !p.forgetful {
		p.seen = append(p.seen, r)
	}
}

// admit records a request that has arrived, decides what to do with it, and
// returns how long it takes at least.
func (p *Proxy) admit(client int, e *exchange) (latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remember(e.request)
	m := Message{Client: client, Args: e.request.args}
	if p.rewrite != nil {
		p.rewrite(m, e.raw)
	}
	e.action, e.ruled = p.rule(m)
	if !e.ruled && p.decide != nil {
		e.action = p.decide(m).ofRequest()
	}
	return p.takes()
}

// meet returns what to do with the reply to e, which has arrived, and how long
// it takes at least.
func (p *Proxy) meet(client int, e *exchange) (action Action, latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.ruled:
		action = e.action
	case p.decide != nil:
		m := Message{Client: client, Reply: true}
		if e.request != nil {
			m.Args = e.request.args
		}
		action = p.decide(m).ofReply()
	}
	return action, p.takes()
}

// takes returns how long a message takes. The caller holds p.mu.
func (p *Proxy) takes() time.Duration {
	if p.latency == nil {
		return 0
	}
	return p.latency()
}

// rule returns the action of the first rule that applies to a request. The
// caller holds p.mu.
func (p *Proxy) rule(m Message) (action Action, applies bool) {
	for i, f := range p.faults {
		if f.rule.Client != 0 && f.rule.Client != m.Client || !matches(f.rule.Match, m.Args) {
			continue
		}
		f.count++
		if f.count == 1 {
			close(f.hit)
		}
		if f.count == f.rule.Times {
			p.faults = slices.Delete(p.faults, i, i+1)
		}
		return f.rule.Action, true
	}
	return Action{}, false
}

// repeat sends a request once more after d, on a connection of its own.
func (p *Proxy) repeat(raw []byte, d time.Duration) {
	if !sleepUntil(p.ctx, time.Now().Add(d)) || !p.awaitResume(p.ctx) {
		return
	}
	server, err := p.dial(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(p.ctx, func() { server.Close() })
	defer stop()
	if _, err := server.Write(raw); err == nil {
		_, _ = readValue(bufio.NewReader(server))
	}
}

// record records a request that arrived where no rule applies.
func (p *Proxy) record(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remember(r)
}

func (p *Proxy) setForwarded(r *request, forwarded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.forwarded = forwarded
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.open(client, 0) {
			client.Close()
		}
	}
}

// open serves a connection of the client of that number, unless the proxy
// refuses it.
func (p *Proxy) open(client net.Conn, number int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := newConn(p, number, client, cancel)
	p.conns[c] = struct{}{}
	delay := p.dialDelay
	p.running.Go(func() {
		c.serve(ctx, delay)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	})
	return true
}
