package spec

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// Fail makes n of the servers fail in this way.
func (on *Quorum) Fail(n int, how func(*Server)) {
	GinkgoHelper()
	for _, s := range on.Servers[:n] {
		how(s)
	}
}

// Warm makes the Client know how fast the servers answer.
func (on *Quorum) Warm(ctx context.Context) {
	GinkgoHelper()
	lock := Obtain(ctx, on.Locks, time.Minute, nil, "warm")
	Expect(lock.Release(ctx)).To(Succeed())
	Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
}

// CountCalls counts the scripts that match, at all servers from now on.
func (on *Quorum) CountCalls(match func(args []string) bool) *CallCount {
	sent := &CallCount{match: match}
	for _, s := range on.Servers {
		s.Client.AddHook(sent)
	}
	return sent
}

// Break makes these the only rules at a server in memory. Every message takes 100 µs, unless a rule says otherwise.
func (on *Quorum) Break(i int, rules ...faultproxy.Rule) []*faultproxy.Fault {
	network := on.Servers[i].Memory
	network.RemoveAll()
	network.SetLatency(Always(100 * time.Microsecond))
	var faults []*faultproxy.Fault
	for _, rule := range rules {
		faults = append(faults, network.Add(rule))
	}
	return faults
}

// Heal takes the rules at these servers in memory out of force, or those at all servers.
func (on *Quorum) Heal(servers ...int) {
	if servers == nil {
		for i := range on.Servers {
			servers = append(servers, i)
		}
	}
	for _, i := range servers {
		on.Break(i)
	}
}

// ConnectAs returns a Client of its own on the servers in memory. The number tells it apart from others.
func (on *Quorum) ConnectAs(number int, change func(*redis.Options)) *redislock.Client {
	var clients []redislock.RedisClient
	for _, s := range on.Servers {
		client := s.Memory.Connect(number, change)
		DeferCleanup(client.Close)
		clients = append(clients, client)
	}
	locks := redislock.NewQuorum(clients)
	DeferCleanup(locks.Close)
	return locks
}

// Quorum is a quorum of servers that a spec runs on. Its fields are set anew for every spec.
type Quorum struct {
	Kind    string
	Servers []*Server
	Locks   *redislock.Client
}

// Server is one server of a quorum.
type Server struct {
	Name   string        // in errors
	Client *redis.Client // for the locks
	Own    *redis.Client // for the spec

	Memory *MemoryServer // one of these
	Real   *redistest.Server
}

// DescribeQuorum runs the same specs on quorums of 3 and of 5 in-memory servers, and of 3 real ones.
func DescribeQuorum(what string, specs func(on *Quorum)) bool {
	DescribeQuorumOf(InMemory, 3, what, specs)
	DescribeQuorumOf(InMemory, 5, what, specs)
	return DescribeQuorumOf(OnServer, 3, what, specs)
}

// DescribeQuorumOf runs specs on a quorum of n servers of one kind.
func DescribeQuorumOf(kind string, n int, what string, specs func(on *Quorum)) bool {
	if elsewhere(kind) {
		return true
	}
	return Describe(fmt.Sprintf("With a quorum of %d on %s, %s", n, kind, what), Label(kind, Quorums), func() {
		on := &Quorum{Kind: kind}
		BeforeEach(func(ctx SpecContext) { on.Begin(ctx, n) })
		specs(on)
	})
}

// Begin sets the fields anew. DescribeQuorumOf calls it before each spec.
func (on *Quorum) Begin(ctx context.Context, n int) {
	if on.Kind == OnServer {
		startQuorum(n)
	}
	CheckLeaks()
	on.Servers = nil
	for i := range n {
		on.Servers = append(on.Servers, on.start(ctx, i))
	}
	on.Locks = on.Connect()
}

func (on *Quorum) start(ctx context.Context, i int) *Server {
	s := &Server{}
	change := func(opt *redis.Options) { opt.ReadTimeout = 2 * time.Second }
	if on.Kind == InMemory {
		s.Memory = NewMemoryServer()
		DeferCleanup(s.Memory.End)
		s.Client, s.Own = s.Memory.Connect(Ours, change), s.Memory.Connect(0, nil)
	} else {
		s.Real = quorumServers[i]
		DeferCleanup(s.Restore)
		opt := &redis.Options{Addr: s.Real.Addr()}
		s.Own = redis.NewClient(opt)
		Expect(s.Own.FlushAll(ctx).Err()).To(Succeed())
		Expect(s.Own.ScriptFlush(ctx).Err()).To(Succeed())
		opt = &redis.Options{Addr: s.Real.Addr()}
		change(opt)
		s.Client = redis.NewClient(opt)
	}
	DeferCleanup(s.Client.Close)
	DeferCleanup(s.Own.Close)
	s.Name = fmt.Sprintf("server %d (%s)", i+1, s.Client.Options().Addr)
	return s
}

// Connect returns one more Client on the servers.
func (on *Quorum) Connect(opts ...redislock.ClientOption) *redislock.Client {
	clients := make([]redislock.RedisClient, len(on.Servers))
	for i, s := range on.Servers {
		clients[i] = s.Client
	}
	locks := redislock.NewQuorum(clients, opts...)
	DeferCleanup(locks.Close)
	return locks
}

// quorumServers are the real servers that the specs of a process share.
var quorumServers []*redistest.Server

// startQuorum starts n of them, unless they run.
func startQuorum(n int) {
	GinkgoHelper()
	RequireServer()
	for len(quorumServers) < n {
		s, err := redistest.Start()
		Expect(err).NotTo(HaveOccurred())
		quorumServers = append(quorumServers, s)
	}
}

// Hang makes the server keep silent until restore.
func (s *Server) Hang() {
	GinkgoHelper()
	if s.Memory != nil {
		s.Memory.Hang()
		return
	}
	Expect(s.Real.Pause()).To(Succeed())
}

// Kill ends the server. What it held is gone.
func (s *Server) Kill() {
	GinkgoHelper()
	if s.Memory != nil {
		s.Memory.Kill()
		return
	}
	Expect(s.Real.Kill()).To(Succeed())
}

// Restore makes a server answer that hangs or was killed.
func (s *Server) Restore() {
	GinkgoHelper()
	if s.Memory != nil {
		s.Memory.Resume()
		s.Memory.Revive()
		return
	}
	if s.Real.Pid() == 0 {
		Expect(s.Real.Restart()).To(Succeed())
	}
	Expect(s.Real.Resume()).To(Succeed())
}

// Restart makes the server forget all that it held.
func (s *Server) Restart() {
	GinkgoHelper()
	s.Kill()
	s.Restore()
}

// Spare returns how many servers may fail.
func (on *Quorum) Spare() int { return (len(on.Servers) - 1) / 2 }

// Values returns what each server holds for a key, "" for nothing.
func (on *Quorum) Values(ctx context.Context, key string) []string {
	var values []string
	for _, s := range on.Servers {
		values = append(values, s.Own.Get(ctx, key).Val())
	}
	return values
}

// Same returns n times the same value.
func Same(n int, value string) []string { return slices.Repeat([]string{value}, n) }

// LeftKeys returns the names of all keys on all servers, apart from those of fence counters.
func (on *Quorum) LeftKeys(ctx context.Context) []string {
	var all []string
	for _, s := range on.Servers {
		for _, key := range s.Own.Keys(ctx, "*").Val() {
			if key != "fence" {
				all = append(all, s.Name+": "+key)
			}
		}
	}
	return all
}
