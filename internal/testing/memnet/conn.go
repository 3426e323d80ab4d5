package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of a connection. Like one of TCP, it keeps what was written until it is read, and each of its two
// directions can end before the other.
type Conn struct {
	in, out *stream
}

// Pipe returns the two ends of a new connection.
func Pipe() (*Conn, *Conn) {
	there, back := newStream(), newStream()
	return &Conn{in: back, out: there}, &Conn{in: there, out: back}
}

// Read returns what the other end has written, io.EOF when that was all, and waits for more otherwise.
func (c *Conn) Read(p []byte) (int, error) { return c.in.read(p) }

// Write never blocks. It fails with EPIPE when the other end is closed.
func (c *Conn) Write(p []byte) (int, error) { return c.out.write(p) }

// CloseWrite ends what the other end can read; this one can read on.
func (c *Conn) CloseWrite() error {
	c.out.end()
	return nil
}

// Close ends both directions. The other end can still read what was written before.
func (c *Conn) Close() error {
	c.out.end()
	c.in.refuse()
	return nil
}

// LocalAddr returns an address that only says that it is in memory.
func (c *Conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr returns the same.
func (c *Conn) RemoteAddr() net.Addr { return address{} }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline makes every Read fail from t on, those under way too, with os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline does the same for Write.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// stream is one direction of a connection.
type stream struct {
	mu       sync.Mutex // protects what follows
	changed  *sync.Cond // wakes the readers; synctest knows that a goroutine waits there
	data     []byte
	ended    bool // the writing end is closed: nothing more comes
	refused  bool // the reading end is closed: nobody reads
	readBy   time.Time
	writeBy  time.Time
	deadline *time.Timer // wakes the readers at readBy
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.refused:
			return 0, net.ErrClosed
		case !s.readBy.IsZero() && !time.Now().Before(s.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0 || len(p) == 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return 0, net.ErrClosed
	case s.refused:
		return 0, syscall.EPIPE
	case !s.writeBy.IsZero() && !time.Now().Before(s.writeBy):
		return 0, os.ErrDeadlineExceeded
	}
	s.data = append(s.data, p...)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.changed.Broadcast()
}

func (s *stream) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused, s.data = true, nil
	if s.deadline != nil {
		s.deadline.Stop()
	}
	s.changed.Broadcast()
}

func (s *stream) setReadDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy = t
	if s.deadline != nil {
		s.deadline.Stop()
		s.deadline = nil
	}
	if !t.IsZero() && !s.refused {
		s.deadline = time.AfterFunc(time.Until(t), s.wake)
	}
	s.changed.Broadcast()
}

// wake makes the readers look at the clock.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

func (s *stream) setWriteDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeBy = t
}
