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
// # Limits
//
// Each request is taken to have one reply. That holds for RESP2 and RESP3, in
// pipelines, in transactions and for blocking commands, and goes wrong for
// MONITOR, SYNC and CLIENT REPLY. A value that answers no request, such as a
// published message, passes through; the reply to a SUBSCRIBE is its first
// confirmation. TLS is not supported.
package faultproxy

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/memnet"
)

// A listener is one of TCP or of memnet.
type listener interface {
	Accept() (net.Conn, error)
	Close() error
}

// A Proxy forwards connections to one Redis server. It is safe for concurrent use.
type Proxy struct {
	target   string
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	listener listener
	addr     string // of the listener

	// running counts accept, which ends when Close closes the listener, and
	// the connections, which end by themselves or when Close cuts them.
	running sync.WaitGroup

	mu        sync.Mutex // protects what follows, and the fields of Fault and request that say so
	closed    bool
	refuse    bool
	forgetful bool
	dialDelay time.Duration
	conns     map[*conn]struct{}
	faults    []*Fault // in force, oldest first
	seen      []*request
}

// New starts a proxy for the Redis server at target, a host:port, on a free port of 127.0.0.1. The server does not need to
// be there yet: each connection to the proxy dials it anew, and is closed if that fails. For an address of memnet, the proxy
// has one as well, and uses no sockets.
func New(target string) (*Proxy, error) {
	p := &Proxy{target: target, conns: make(map[*conn]struct{})}
	if memnet.Has(target) {
		l := memnet.Listen()
		p.listener, p.addr, p.dial = l, l.Addr(), memnet.Dial
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p.listener, p.addr, p.dial = l, l.Addr().String(), (&net.Dialer{}).DialContext
	}
	p.running.Go(p.accept)
	return p, nil
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
	err := p.listener.Close()
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

// CutAll closes every connection on both sides. What the proxy still holds of them is lost, delayed requests included; the
// server may or may not execute what was forwarded just before.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.cut()
	}
}

// Add puts a rule into force for requests that arrive from now on, behind the rules that are in force already: a request is
// dealt with by the first rule that matches it.
func (p *Proxy) Add(rule Rule) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &Fault{proxy: p, rule: rule, hit: make(chan struct{})}
	p.faults = append(p.faults, f)
	return f
}

// Requests returns how many requests that match have reached the proxy since it
// started, whatever became of them. A nil match counts every request.
func (p *Proxy) Requests(match func(args []string) bool) int {
	return p.count(func(r *request) bool { return matches(match, r.args) })
}

// Executed returns how many requests that match the proxy has forwarded whole to the server. The number includes a request
// before its reply reaches the client. A nil match counts every request.
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

// admit records a request that has arrived and returns what to do with it.
func (p *Proxy) admit(r *request) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remember(r)
	for i, f := range p.faults {
		if !matches(f.rule.Match, r.args) {
			continue
		}
		f.count++
		if f.count == 1 {
			close(f.hit)
		}
		if f.count == f.rule.Times {
			p.faults = slices.Delete(p.faults, i, i+1)
		}
		return f.rule.Action
	}
	return Action{}
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
		p.open(client)
	}
}

func (p *Proxy) open(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		client.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := newConn(p, client, cancel)
	p.conns[c] = struct{}{}
	delay := p.dialDelay
	p.running.Go(func() {
		c.serve(ctx, delay)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	})
}
