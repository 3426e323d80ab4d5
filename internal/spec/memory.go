package spec

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/memnet"
)

// Slow makes a server answer after that time.
func (s *MemoryServer) Slow(trip time.Duration) {
	s.SetFate(func(*Wire, bool, []byte) Fate { return Fate{Delay: trip / 2} }) // there and back
}

// MemoryServer is an in-memory Redis that can hang, die and forget, behind a network that can do to each request and
// reply what a real one can. Everything waits on the clock, so it runs in a bubble of synctest.
type MemoryServer struct {
	Memory *miniredis.Miniredis

	mu    sync.Mutex                     // protects the fields below
	Fate  func(*Wire, bool, []byte) Fate // what becomes of a chunk
	down  bool                           // it refuses connections
	hangs chan struct{}                  // closed when it answers again; nil while it does
	wires map[*Wire]bool                 // the connections that are open
	free  context.Context                // ended by close
	close context.CancelFunc
}

// Fate is what becomes of one chunk: the bytes of a request, or of a pipeline, or of its replies.
type Fate struct {
	Delay  time.Duration // and of all that follows on the connection
	Cut    bool          // the client's end is closed at once; the chunk is delivered to a server all the same, after delay
	Lost   bool          // it is not delivered, and the connection is closed
	Silent bool          // from now on nothing reaches the client
	Again  time.Duration // a request is executed once more after this time, on another connection; 0 for no
}

// NewMemoryServer starts an empty server, which runs until End.
func NewMemoryServer() *MemoryServer {
	s := &MemoryServer{Memory: miniredis.NewMiniRedis(), wires: map[*Wire]bool{}, Fate: Latency(200 * time.Microsecond)}
	s.Memory.ClockTTL(true)
	if first, err := s.Memory.Dial(); err == nil { // starts it without a socket
		_ = first.Close()
	}
	s.free, s.close = context.WithCancel(context.Background())
	return s
}

// dial is a Dialer for Redis clients. owner is for fate to tell clients apart. What go-redis sends on a new connection
// before anything else is answered at once, even if the server hangs: go-redis connects a subscription with a mutex locked,
// and its Close waits for that mutex. In a bubble, the clock would stand still meanwhile.
func (s *MemoryServer) dial(owner int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down || s.free.Err() != nil {
			return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
		}
		near, far := memnet.Pipe()
		w := &Wire{Server: s, Owner: owner, client: far}
		w.greeting.Store(true)
		w.back = s.serve()
		s.wires[w] = true
		go w.pump(w.client, w.back, false)
		go w.pump(w.back, w.client, true)
		return near, nil
	}
}

// serve returns a connection to the server itself.
func (s *MemoryServer) serve() *memnet.Conn {
	near, far := memnet.Pipe()
	s.Memory.Server().ServeConn(far)
	return near
}

// Hang makes the server hold all that arrives, until Resume.
func (s *MemoryServer) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs == nil {
		s.hangs = make(chan struct{})
	}
}

// Resume ends a Hang: what arrived meanwhile is executed.
func (s *MemoryServer) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs != nil {
		close(s.hangs)
		s.hangs = nil
	}
}

// Refuse ends all connections and refuses new ones until Revive.
func (s *MemoryServer) Refuse() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.cutAll()
}

// Kill is Refuse, and the server forgets all its keys.
func (s *MemoryServer) Kill() {
	s.Refuse()
	s.Memory.FlushAll()
}

// SetFate changes what becomes of chunks from now on.
func (s *MemoryServer) SetFate(change func(*Wire, bool, []byte) Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Fate = change
}

func (s *MemoryServer) fateOf(w *Wire, reply bool, data []byte) Fate {
	s.mu.Lock()
	decide := s.Fate
	s.mu.Unlock()
	return decide(w, reply, data)
}

// Revive ends a Refuse.
func (s *MemoryServer) Revive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

func (s *MemoryServer) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.wires {
		_ = w.client.Close()
		_ = w.back.Close()
		delete(s.wires, w)
	}
}

// End ends the server and all connections.
func (s *MemoryServer) End() {
	s.Resume()
	s.close()
	s.cutAll()
	s.Memory.Close()
}

// Wire is one connection of a client to a server.
type Wire struct {
	Server *MemoryServer
	Owner  int
	client *memnet.Conn // the far end of the client's connection
	back   *memnet.Conn // to the server
	silent bool         // nothing reaches the client; belongs to the goroutine of the replies

	greeting atomic.Bool // only what go-redis sends on a new connection was sent so far
}

// greetings are the commands that go-redis sends on a new connection.
var greetings = regexp.MustCompile(`^\*\d+\r\n\$\d+\r\n(hello|client|select|readonly)\r\n`)

// isGreeting reports whether a chunk is part of the greeting.
func (w *Wire) isGreeting(reply bool, data []byte) bool {
	if !reply && w.greeting.Load() && !greetings.Match(data) {
		w.greeting.Store(false)
	}
	return w.greeting.Load()
}

type parcel struct {
	data     []byte
	at       time.Time
	fate     Fate
	greeting bool
}

// pump carries chunks in one direction, each not before its time, in order.
func (w *Wire) pump(from, to *memnet.Conn, reply bool) {
	parcels := make(chan parcel, 1000)
	go w.deliver(parcels, to, reply)
	defer close(parcels)
	var last time.Time
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p := parcel{data: append([]byte(nil), buffer[:n]...), at: time.Now()}
			if p.greeting = w.isGreeting(reply, p.data); !p.greeting {
				p.fate = w.Server.fateOf(w, reply, p.data)
			}
			if p.at = p.at.Add(p.fate.Delay); p.at.Before(last) {
				p.at = last
			}
			last = p.at
			if p.fate.Cut || p.fate.Lost {
				_ = w.client.Close()
			}
			select {
			case parcels <- p:
			case <-w.Server.free.Done():
				return
			}
			if p.fate.Lost {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *Wire) deliver(parcels <-chan parcel, to *memnet.Conn, reply bool) {
	defer func() {
		_ = to.CloseWrite()
		if reply {
			_ = w.client.Close()
			w.Server.mu.Lock()
			delete(w.Server.wires, w)
			w.Server.mu.Unlock()
		}
		for range parcels { // so that the other goroutine never waits
		}
	}()
	for p := range parcels {
		if !p.greeting && !w.Server.await(p.at) {
			return
		}
		if reply {
			w.silent = w.silent || p.fate.Silent
		}
		if p.fate.Lost {
			return
		}
		if reply && w.silent {
			continue
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
		if p.fate.Again > 0 && !reply {
			go w.Server.again(p.data, p.fate.Again)
		}
	}
}

// again executes a request a second time.
func (s *MemoryServer) again(data []byte, after time.Duration) {
	if !s.await(time.Now().Add(after)) {
		return
	}
	conn := s.serve()
	_, _ = conn.Write(data)
	_ = s.await(time.Now().Add(time.Millisecond))
	_ = conn.Close()
}

// await waits until that time, and for as long as the server hangs. It returns false if the server ends first.
func (s *MemoryServer) await(at time.Time) bool {
	for {
		s.mu.Lock()
		hangs := s.hangs
		s.mu.Unlock()
		wait := time.Until(at)
		if wait <= 0 && hangs == nil {
			return s.free.Err() == nil
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-s.free.Done():
				timer.Stop()
				return false
			}
			continue
		}
		select {
		case <-hangs:
		case <-s.free.Done():
			return false
		}
	}
}

// Connect returns a client of the server.
func (s *MemoryServer) Connect(owner int, change func(*redis.Options)) *redis.Client {
	opt := &redis.Options{Addr: "127.0.0.1:0", Dialer: s.dial(owner), PoolSize: 100}
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
	value, _ := s.Memory.Get(key)
	holder, _, _ := strings.Cut(value, " ")
	return holder == token && s.Memory.TTL(key) >= left
}

// RunsScript reports whether a chunk runs one of our scripts, or its joint one.
func RunsScript(data []byte, script string) bool {
	return slices.ContainsFunc(scriptSums(script), func(sum []byte) bool { return bytes.Contains(data, sum) })
}

// scriptSums returns what only the requests for a script have.
func scriptSums(script string) [][]byte {
	sumsMu.Lock()
	defer sumsMu.Unlock()
	if sums[script] == nil {
		for _, name := range []string{script, script + "_each"} {
			if exists(name) {
				text := Source(name)
				sum := sha1.Sum([]byte(text))
				sums[script] = append(sums[script], []byte(hex.EncodeToString(sum[:])), []byte(text))
			}
		}
	}
	return sums[script]
}

var (
	sumsMu sync.Mutex // protects sums
	sums   = map[string][][]byte{}
)

// SkewProposals changes the fencing tokens that the obtains in a chunk propose, as if the client's clock were wrong by so
// many µs. A proposal is the first number of 15 digits after the name of the script; of 16 from the year 2001 on.
func SkewProposals(data []byte, by int64) {
	for _, sum := range scriptSums("obtain") {
		rest := data
		for {
			at := bytes.Index(rest, sum)
			if at < 0 {
				break
			}
			rest = rest[at+len(sum):]
			proposed := proposals.FindSubmatchIndex(rest)
			if proposed == nil {
				break
			}
			number := rest[proposed[2]:proposed[3]]
			if proposal, err := strconv.ParseInt(string(number), 10, 64); err == nil {
				copy(number, fmt.Sprint(proposal+by))
			}
		}
	}
}

var proposals = regexp.MustCompile(`\$1[56]\r\n(\d{15,16})\r\n`)

// Latency is a fate that only takes a random time of up to most. Something must take time: otherwise a caller that tries
// again and again would stop the clock.
func Latency(most time.Duration) func(*Wire, bool, []byte) Fate {
	return func(*Wire, bool, []byte) Fate { return Fate{Delay: rand.N(most)} }
}
