package redislock_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
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
	"github.com/redislock/redislock/internal/transport"
)

// memoryServer is an in-memory Redis that can hang, die and forget, behind a network that can do to each request and
// reply what a real one can. Everything waits on the clock, so it runs in a bubble of synctest.
type memoryServer struct {
	memory *miniredis.Miniredis

	mu    sync.Mutex                     // protects the fields below
	fate  func(*wire, bool, []byte) fate // what becomes of a chunk
	down  bool                           // it refuses connections
	hangs chan struct{}                  // closed when it answers again; nil while it does
	wires map[*wire]bool                 // the connections that are open
	free  context.Context                // ended by close
	close context.CancelFunc
}

// fate is what becomes of one chunk: the bytes of a request, or of a pipeline, or of its replies.
type fate struct {
	delay  time.Duration // and of all that follows on the connection
	cut    bool          // the client's end is closed at once; the chunk is delivered to a server all the same, after delay
	lost   bool          // it is not delivered, and the connection is closed
	silent bool          // from now on nothing reaches the client
	again  time.Duration // a request is executed once more after this time, on another connection; 0 for no
}

func newMemoryServer() *memoryServer {
	s := &memoryServer{memory: miniredis.NewMiniRedis(), wires: map[*wire]bool{}, fate: latency(200 * time.Microsecond)}
	s.memory.ClockTTL(true)
	if first, err := s.memory.Dial(); err == nil { // starts it without a socket
		_ = first.Close()
	}
	s.free, s.close = context.WithCancel(context.Background())
	return s
}

// dial is a Dialer for Redis clients. owner is for fate to tell clients apart. What go-redis sends on a new connection
// before anything else is answered at once, even if the server hangs: go-redis connects a subscription with a mutex locked,
// and its Close waits for that mutex. In a bubble, the clock would stand still meanwhile.
func (s *memoryServer) dial(owner int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down || s.free.Err() != nil {
			return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
		}
		near, far := memnet.Pipe()
		w := &wire{server: s, owner: owner, client: far}
		w.greeting.Store(true)
		w.back = s.serve()
		s.wires[w] = true
		go w.pump(w.client, w.back, false)
		go w.pump(w.back, w.client, true)
		return near, nil
	}
}

// serve returns a connection to the server itself.
func (s *memoryServer) serve() *memnet.Conn {
	near, far := memnet.Pipe()
	s.memory.Server().ServeConn(far)
	return near
}

// hang makes the server hold all that arrives, and resume lets it go on.
func (s *memoryServer) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs == nil {
		s.hangs = make(chan struct{})
	}
}

func (s *memoryServer) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs != nil {
		close(s.hangs)
		s.hangs = nil
	}
}

// refuse ends all connections and refuses new ones until revive.
func (s *memoryServer) refuse() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.cutAll()
}

// kill is refuse, and what the server holds is gone.
func (s *memoryServer) kill() {
	s.refuse()
	s.memory.FlushAll()
}

// setFate changes what becomes of chunks from now on.
func (s *memoryServer) setFate(change func(*wire, bool, []byte) fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fate = change
}

func (s *memoryServer) fateOf(w *wire, reply bool, data []byte) fate {
	s.mu.Lock()
	decide := s.fate
	s.mu.Unlock()
	return decide(w, reply, data)
}

func (s *memoryServer) revive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

func (s *memoryServer) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.wires {
		_ = w.client.Close()
		_ = w.back.Close()
		delete(s.wires, w)
	}
}

func (s *memoryServer) end() {
	s.resume()
	s.close()
	s.cutAll()
	s.memory.Close()
}

// wire is one connection of a client to a server.
type wire struct {
	server *memoryServer
	owner  int
	client *memnet.Conn // the far end of the client's connection
	back   *memnet.Conn // to the server
	silent bool         // nothing reaches the client; belongs to the goroutine of the replies

	greeting atomic.Bool // only what go-redis sends on a new connection was sent so far
}

// greetings are the commands that go-redis sends on a new connection.
var greetings = regexp.MustCompile(`^\*\d+\r\n\$\d+\r\n(hello|client|select|readonly)\r\n`)

// isGreeting reports whether a chunk is part of the greeting.
func (w *wire) isGreeting(reply bool, data []byte) bool {
	if !reply && w.greeting.Load() && !greetings.Match(data) {
		w.greeting.Store(false)
	}
	return w.greeting.Load()
}

type parcel struct {
	data     []byte
	at       time.Time
	fate     fate
	greeting bool
}

// pump carries chunks in one direction, each not before its time, in order.
func (w *wire) pump(from, to *memnet.Conn, reply bool) {
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
				p.fate = w.server.fateOf(w, reply, p.data)
			}
			if p.at = p.at.Add(p.fate.delay); p.at.Before(last) {
				p.at = last
			}
			last = p.at
			if p.fate.cut || p.fate.lost {
				_ = w.client.Close()
			}
			select {
			case parcels <- p:
			case <-w.server.free.Done():
				return
			}
			if p.fate.lost {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) deliver(parcels <-chan parcel, to *memnet.Conn, reply bool) {
	defer func() {
		_ = to.CloseWrite()
		if reply {
			_ = w.client.Close()
			w.server.mu.Lock()
			delete(w.server.wires, w)
			w.server.mu.Unlock()
		}
		for range parcels { // so that the other goroutine never waits
		}
	}()
	for p := range parcels {
		if !p.greeting && !w.server.await(p.at) {
			return
		}
		if reply {
			w.silent = w.silent || p.fate.silent
		}
		if p.fate.lost {
			return
		}
		if reply && w.silent {
			continue
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
		if p.fate.again > 0 && !reply {
			go w.server.again(p.data, p.fate.again)
		}
	}
}

// again executes a request a second time.
func (s *memoryServer) again(data []byte, after time.Duration) {
	if !s.await(time.Now().Add(after)) {
		return
	}
	conn := s.serve()
	_, _ = conn.Write(data)
	_ = s.await(time.Now().Add(time.Millisecond))
	_ = conn.Close()
}

// await waits until that time, and for as long as the server hangs. It returns false if the server ends first.
func (s *memoryServer) await(at time.Time) bool {
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

// connect returns a client of the server.
func (s *memoryServer) connect(owner int, change func(*redis.Options)) *redis.Client {
	opt := &redis.Options{Addr: "127.0.0.1:0", Dialer: s.dial(owner), PoolSize: 100}
	// Otherwise go-redis waits for the server with a mutex locked, and the clock of a bubble does not move meanwhile.
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if change != nil {
		change(opt)
	}
	return redis.NewClient(opt)
}

// newMemoryCluster returns a client of a Cluster of the servers. The keys "a", "b" and "c" are on the first three, and all
// others on the first.
func newMemoryCluster(servers []*memoryServer, owner int, change func(*redis.Options)) *redis.ClusterClient {
	return newCluster(len(servers), func(i int, opt *redis.Options) *redis.Client {
		return servers[i].connect(owner, func(own *redis.Options) {
			own.MaxRetries = opt.MaxRetries // a Cluster resends by itself
			if change != nil {
				change(own)
			}
		})
	})
}

// newCluster returns a client of a Cluster of so many nodes, which need not know that they are one. The keys "a", "b" and "c"
// are on the first three, and all others on the first. connect connects to a node.
func newCluster(nodes int, connect func(i int, opt *redis.Options) *redis.Client) *redis.ClusterClient {
	addrs := make([]string, nodes)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("node-%d:6379", i) // a loopback address would get another host
	}
	var ranges []redis.ClusterSlot
	add := func(first, last, node int) {
		if first <= last {
			ranges = append(ranges, redis.ClusterSlot{Start: first, End: last, Nodes: []redis.ClusterNode{{Addr: addrs[node]}}})
		}
	}
	next := 0
	for _, key := range []string{"b", "c", "a"} { // in the order of their slots
		slot := transport.Slot(key)
		add(next, slot-1, 0)
		add(slot, slot, min(slices.Index([]string{"a", "b", "c"}, key), nodes-1))
		next = slot + 1
	}
	add(next, 16383, 0)
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:        addrs,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return ranges, nil },
		NewClient: func(opt *redis.Options) *redis.Client {
			client := connect(slices.Index(addrs, opt.Addr), opt)
			client.AddHook(knowing{})
			return client
		},
		MaxRedirects: 3,
	})
}

// knowing answers COMMAND, which the first call on a Cluster sends with a mutex locked: so the clock of a bubble would not
// move if others wait for the mutex.
type knowing struct{}

func (knowing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (knowing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (knowing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if infos, is := cmd.(*redis.CommandsInfoCmd); is {
			infos.SetVal(map[string]*redis.CommandInfo{"eval": {Name: "eval"}, "evalsha": {Name: "evalsha"}})
			return nil
		}
		return next(ctx, cmd)
	}
}

// has reports whether the server holds all keys of a lock, for another left at least.
func (s *memoryServer) has(lock *redislock.Lock, left time.Duration) bool {
	return !slices.ContainsFunc(lock.Keys(), func(key string) bool { return !s.hasKey(key, lock.Token(), left) })
}

func (s *memoryServer) hasKey(key, token string, left time.Duration) bool {
	value, _ := s.memory.Get(key)
	holder, _, _ := strings.Cut(value, " ")
	return holder == token && s.memory.TTL(key) >= left
}

// runs reports whether a chunk runs one of our scripts, or its joint one.
func runs(data []byte, script string) bool {
	return slices.ContainsFunc(scriptSums(script), func(sum []byte) bool { return bytes.Contains(data, sum) })
}

// scriptSums returns what only the requests for a script have.
func scriptSums(script string) [][]byte {
	sumsMu.Lock()
	defer sumsMu.Unlock()
	if sums[script] == nil {
		for _, name := range []string{script, script + "_each"} {
			if _, err := os.Stat(name + ".lua"); err == nil {
				text := source(name)
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

// skewProposals changes the fencing tokens that the obtains in a chunk propose, as if the client's clock were wrong by so
// many µs. A proposal is the first number of 15 digits after the name of the script; of 16 from the year 2001 on.
func skewProposals(data []byte, by int64) {
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

// latency is a fate that only takes a random time of up to most. Something must take time: otherwise a caller that tries again and
// again would stop the clock.
func latency(most time.Duration) func(*wire, bool, []byte) fate {
	return func(*wire, bool, []byte) fate { return fate{delay: rand.N(most)} }
}
