package spec

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/incarnation"
	"github.com/redislock/redislock/internal/testing/memnet"
)

// MemoryServer is an in-memory Redis that can hang, die and forget, behind a proxy that can do to each request and reply
// what a real network can. Everything waits on the clock, so it runs in a bubble of synctest.
type MemoryServer struct {
	*faultproxy.Proxy // the network; it tells clients apart by their numbers
	Memory            *miniredis.Miniredis
	Identity          *incarnation.Server // what a guard knows the server by
}

// The numbers by which the network tells clients apart. 0 is a client that the spec looks at servers with.
const (
	Ours   = 1 // of the locks that a spec is about
	Theirs = 2 // of another process
)

// NewMemoryServer starts an empty server, which runs until End. Every message takes up to 200 µs. Something must take time:
// otherwise a caller that tries again and again would stop the clock.
func NewMemoryServer() *MemoryServer {
	s := newMemoryServer()
	s.PassGreetings()
	s.SetLatency(UpTo(200 * time.Microsecond))
	return s
}

func newMemoryServer() *MemoryServer {
	s := &MemoryServer{Memory: miniredis.NewMiniRedis()}
	s.Memory.ClockTTL(true)
	if first, err := s.Memory.Dial(); err == nil { // starts it without a socket
		_ = first.Close()
	}
	s.Identity = incarnation.Of(s.Memory)
	s.Proxy = faultproxy.NewInMemory(func(context.Context, string, string) (net.Conn, error) {
		near, far := memnet.Pipe()
		s.Memory.Server().ServeConn(far)
		return near, nil
	})
	s.LeaveQuestions(true)
	s.Forget()
	return s
}

// UpTo returns a latency for a MemoryServer: a random time below most.
func UpTo(most time.Duration) func() time.Duration {
	return func() time.Duration { return rand.N(most) }
}

// Always returns a latency for a MemoryServer that is always the same.
func Always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// Slow makes a server answer after that time.
func (s *MemoryServer) Slow(trip time.Duration) { s.SetLatency(Always(trip / 2)) } // there and back

// Lost is the fate of a message that is lost, with its connection.
func Lost(m faultproxy.Message) faultproxy.Action {
	if m.Reply {
		return faultproxy.CutAfterReplyBytes(0)
	}
	return faultproxy.CutAfterRequestBytes(0)
}

// Refuse ends all connections and refuses new ones until Revive.
func (s *MemoryServer) Refuse() {
	s.RefuseConnections(true)
	s.CutAll()
}

// Revive ends a Refuse.
func (s *MemoryServer) Revive() { s.RefuseConnections(false) }

// Kill is Refuse, and LoseMemory.
func (s *MemoryServer) Kill() {
	s.Refuse()
	s.LoseMemory()
}

// LoseMemory makes the server forget all its keys and begin a new term, as a restart without its data does. Connections stay
// open.
func (s *MemoryServer) LoseMemory() {
	s.Memory.FlushAll()
	s.Identity.Begin()
}

// End ends the server and all connections.
func (s *MemoryServer) End() {
	_ = s.Close()
	s.Memory.Close()
}

// Connect returns a client of the server, with that number.
func (s *MemoryServer) Connect(number int, change func(*redis.Options)) *redis.Client {
	opt := &redis.Options{Addr: "127.0.0.1:0", Dialer: s.Dialer(number), PoolSize: 100}
	// Otherwise go-redis waits for the server with a mutex locked, and the clock of a bubble does not move meanwhile.
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if change != nil {
		change(opt)
	}
	return redis.NewClient(opt)
}

// Has reports whether the server holds all keys of a lock, for another left at least.
func (s *MemoryServer) Has(lock *redislock.Lock, left time.Duration) bool {
	return !slices.ContainsFunc(lock.Keys(), func(key string) bool { return !s.HasKey(key, lock.Token(), left) })
}

// HasKey reports whether the server holds a key for a token, for another left at least.
func (s *MemoryServer) HasKey(key, token string, left time.Duration) bool {
	lasts, has := s.Holders(key)[token]
	return has && lasts >= left
}

// Holders returns who holds a key, by token, and for how much longer. If no lock has written the key, the token is "".
func (s *MemoryServer) Holders(key string) map[string]time.Duration {
	if !s.Memory.Exists(key) {
		return nil
	}
	value, _ := s.Memory.Get(key) // "" for another type
	token, _, _ := strings.Cut(value, " ")
	lasts := s.Memory.TTL(key)
	if value != keyname.SharedMark {
		return map[string]time.Duration{token: lasts}
	}
	all, now := map[string]time.Duration{}, time.Now().UnixMilli()
	for member, score := range SortedSet(s.Memory.DB(0), keyname.HouseOf(key)) {
		if left := time.Duration(int64(score)-now) * time.Millisecond; left > 0 {
			all[member] = min(left, lasts)
		}
	}
	if len(all) == 0 {
		all[""] = lasts
	}
	return all
}

// SortedSet returns a copy of a sorted set. miniredis itself would hand out the map that it goes on to write.
func SortedSet(db *miniredis.RedisDB, key string) map[string]float64 {
	members, _ := db.ZMembers(key)
	copied := map[string]float64{}
	for _, member := range members {
		copied[member], _ = db.ZScore(key, member)
	}
	return copied
}

// SkewClock makes the fencing tokens that a client proposes to the server look as if its clock were ahead.
func (s *MemoryServer) SkewClock(number int, ahead time.Duration) {
	s.RewriteRequests(func(m faultproxy.Message, raw []byte) {
		if m.Client == number {
			SkewProposal(m, raw, ahead)
		}
	})
}

// SkewProposal changes the fencing token that a request proposes, if it is an obtain, as if the client's clock were ahead.
// If the request wants none, its proposal is a ticket, if it makes one.
func SkewProposal(m faultproxy.Message, raw []byte, ahead time.Duration) {
	if !Running("obtain")(m.Args) {
		return
	}
	keys, _ := strconv.Atoi(m.Args[2])
	argv := m.Args[3+keys:]
	for _, at := range []int{4, 10} { // see obtain.lua
		if at >= len(argv) || len(argv[at]) < 15 { // it proposes nothing there; numbers of 15 digits end in the year 2001
			continue
		}
		if proposal, err := strconv.ParseInt(argv[at], 10, 64); err == nil {
			begin := bytes.Index(raw, []byte("\r\n"+argv[at]+"\r\n")) + 2
			copy(raw[begin:begin+len(argv[at])], fmt.Sprint(proposal+ahead.Microseconds()))
		}
		return
	}
}
