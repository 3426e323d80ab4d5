// Package store is the guarded store: a resource that remembers the highest fencing token it has seen, and refuses lower
// ones. Workers reach it over a socket, through no proxy.
package store

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// Store serves writes.
type Store struct {
	listener net.Listener
	log      *history.Writer
	running  sync.WaitGroup

	mu      sync.Mutex // protects the fields below; the log has the writes in their order
	highest map[string]int64
	conns   map[net.Conn]struct{}
	closed  bool
}

// Listen serves at a socket of that name, and logs each write as an event.
func Listen(name string, log *history.Writer) (*Store, error) {
	listener, err := net.Listen("unix", name)
	if err != nil {
		return nil, err
	}
	s := &Store{listener: listener, log: log, highest: map[string]int64{}, conns: map[net.Conn]struct{}{}}
	s.running.Go(s.accept)
	return s, nil
}

// Close ends all connections.
func (s *Store) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

func (s *Store) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			_ = conn.Close()
		} else {
			s.conns[conn] = struct{}{}
			s.running.Go(func() { s.serve(conn) }) // ends with the connection
		}
		s.mu.Unlock()
	}
}

func (s *Store) serve(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
		_ = conn.Close()
	}()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var op, key string
		var fence int64
		if _, err := fmt.Sscan(lines.Text(), &op, &key, &fence); err != nil {
			return
		}
		if _, err := fmt.Fprintln(conn, s.write(op, key, fence)); err != nil {
			return
		}
	}
}

func (s *Store) write(op, key string, fence int64) (outcome string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcome = "refused"
	if fence >= s.highest[key] {
		s.highest[key] = fence
		outcome = "taken"
	}
	s.log.Write(history.Event{
		Kind: history.Write, At: clock.Now(), Op: op, FenceKey: key, Fence: fence, Outcome: outcome,
	})
	return outcome
}

// Client writes to a Store over one connection. It must not be used concurrently.
type Client struct {
	conn  net.Conn
	lines *bufio.Reader
}

// Dial connects to a Store.
func Dial(name string) (*Client, error) {
	conn, err := net.Dial("unix", name)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, lines: bufio.NewReader(conn)}, nil
}

// Write asks the store to write with a fencing token. It reports whether the store did.
func (c *Client) Write(op, key string, fence int64) (taken bool, err error) {
	if _, err := fmt.Fprintln(c.conn, op, key, fence); err != nil {
		return false, err
	}
	reply, err := c.lines.ReadString('\n')
	if err != nil {
		return false, err
	}
	switch strings.TrimSpace(reply) {
	case "taken":
		return true, nil
	case "refused":
		return false, nil
	}
	return false, errors.New("store: unknown reply " + reply)
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
