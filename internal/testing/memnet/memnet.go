// Package memnet is a network in memory, for tests in a bubble of testing/synctest: there, a goroutine that waits for a
// socket stops the clock for good, and one that waits for a connection of this network does not.
package memnet

import (
	"context"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// firstPort is above all ports that exist: dialing an address of this network with a socket fails, and reaches no other
// server. The host is an IP address, because go-redis would look up a name.
const firstPort = 1 << 16

var (
	mu        sync.Mutex // protects what follows
	ports     = firstPort
	listeners = map[string]*Listener{}
)

// Listener accepts the connections that are dialled to its address.
type Listener struct {
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a Listener at a new address.
func Listen() *Listener {
	mu.Lock()
	defer mu.Unlock()
	addr := "127.0.0.1:" + strconv.Itoa(ports)
	ports++
	l := &Listener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	listeners[addr] = l
	return l
}

// Has reports whether an address is one of this network, whether somebody listens there or not.
func Has(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= firstPort
}

// Dial connects to the Listener at an address. It waits until the connection is accepted, or ctx ends, and fails with
// ECONNREFUSED if nobody listens there. The network is not looked at, so that Dial fits the Dialer of Redis clients.
func Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	mu.Lock()
	l := listeners[addr]
	mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	near, far := Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Addr returns the address to dial.
func (l *Listener) Addr() string { return l.addr }

// Accept returns the next connection, and net.ErrClosed after Close.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listening. Connections stay as they are.
func (l *Listener) Close() error {
	l.once.Do(func() {
		mu.Lock()
		delete(listeners, l.addr)
		mu.Unlock()
		close(l.closed)
	})
	return nil
}
