// Package incarnation gives an in-memory Redis what a guard reads in INFO replication, which miniredis lacks: whether the
// server is a master, and an id that a real one draws at each start and at each promotion.
package incarnation

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Server is the identity of an in-memory Redis. It is safe for concurrent use.
type Server struct {
	mu   sync.Mutex // protects the fields below
	id   string
	role string
}

// Of gives m an identity: it answers INFO replication from now on, also to scripts. It takes the pre-hook of m.
func Of(m *miniredis.Miniredis) *Server {
	s := &Server{}
	s.Begin()
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "INFO") || len(args) != 1 || !strings.EqualFold(args[0], "replication") {
			return false
		}
		c.WriteBulk(s.info())
		return true
	})
	return s
}

// Begin begins a new term as a master, as after a restart or a promotion.
func (s *Server) Begin() {
	var random [20]byte
	_, _ = rand.Read(random[:])
	s.Become("master", hex.EncodeToString(random[:]))
}

// Follow makes the server a replica of the one with that id, as far as it says.
func (s *Server) Follow(id string) { s.Become("slave", id) }

// Become sets what the server says.
func (s *Server) Become(role, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role, s.id = role, id
}

// ID returns the id of the present term.
func (s *Server) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

func (s *Server) info() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "# Replication\r\nrole:" + s.role + "\r\nconnected_slaves:0\r\nmaster_replid:" + s.id +
		"\r\nmaster_replid2:0000000000000000000000000000000000000000\r\n"
}
