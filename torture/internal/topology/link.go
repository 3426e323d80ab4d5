package topology

import (
	"io"
	"net"
	"sync"
)

// link forwards the connections of a replica to its master. When the replica ends a connection, the master does not hear of
// it, as when the network between the two is cut: the master counts on its replica until that has been silent for too long.
type link struct {
	listener net.Listener
	target   string
	flows    sync.WaitGroup

	mu     sync.Mutex // protects the fields below
	closed bool
	conns  []net.Conn
}

func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target}
	l.flows.Go(l.accept)
	return l, nil
}

// port returns the port to which the replica connects.
func (l *link) port() int { return l.listener.Addr().(*net.TCPAddr).Port }

func (l *link) accept() {
	for {
		replica, err := l.listener.Accept()
		if err != nil {
			return
		}
		if !l.add(replica) {
			return
		}
		master, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = replica.Close()
			continue
		}
		if !l.add(master) {
			return
		}
		l.flows.Go(func() { _, _ = io.Copy(master, replica) })
		l.flows.Go(func() {
			_, _ = io.Copy(replica, master)
			_, _ = io.Copy(io.Discard, master) // if the replica has gone, the master must not notice
			_ = replica.Close()
		})
	}
}

// add notes a connection, or closes it and returns false if the link is closed.
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return false
	}
	l.conns = append(l.conns, c)
	return true
}

// close ends all connections.
func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.flows.Wait()
}
