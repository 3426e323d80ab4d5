package spec

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/memnet"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// Redis is the Redis that a spec runs on. Its fields are set anew for every spec.
type Redis struct {
	Kind   string
	Addr   string
	Client *redis.Client
	Memory *miniredis.Miniredis // nil on a real server
}

// DescribeOnRedis runs the same specs on miniredis, always, and on a real redis-server, where there is one.
func DescribeOnRedis(what string, specs func(on *Redis)) bool {
	for _, kind := range []string{InMemory, OnServer} {
		DescribeOn(kind, what, specs)
	}
	return true
}

// DescribeOn runs specs on one kind of Redis: those that the other kind cannot run.
func DescribeOn(kind, what string, specs func(on *Redis)) bool {
	if elsewhere(kind) {
		return true
	}
	labels := Labels{kind}
	if kind == OnServer {
		labels = append(labels, sharing)
	}
	return Describe(what+" on "+kind, labels, func() {
		on := &Redis{Kind: kind}
		BeforeEach(on.begin)
		specs(on)
	})
}

// InFakeTime returns the entries on miniredis, and none on a real server: they wait long, and show nothing that others do
// not show there.
func (on *Redis) InFakeTime(entries ...TableEntry) []TableEntry {
	if on.Kind != InMemory {
		return nil
	}
	return entries
}

// OnlyInFakeTime skips the spec on a real server, where the time is real, and says why.
func (on *Redis) OnlyInFakeTime(why string) {
	GinkgoHelper()
	if on.Kind == OnServer {
		Skip(why + ": on fake time only")
	}
}

func (on *Redis) begin(ctx SpecContext) {
	if on.Kind == OnServer {
		sharedServer() // outlives the spec
	}
	CheckLeaks()
	if on.Kind == InMemory {
		on.Memory, on.Addr = StartMemory()
		on.Client = redis.NewClient(&redis.Options{Addr: on.Addr, Dialer: memnet.Dial})
	} else {
		addr, db := sharedServer()
		on.Addr = addr
		on.Client = redis.NewClient(&redis.Options{Addr: addr, DB: db})
		Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed()) // what a spec finds does not depend on those before it
	}
	DeferCleanup(on.Client.Close)
}

// StartMemory returns an empty in-memory Redis that ends with the spec, and its address.
func StartMemory() (*miniredis.Miniredis, string) {
	GinkgoHelper()
	memory := miniredis.NewMiniRedis()
	memory.ClockTTL(true)
	first, err := memory.Dial() // starts it without a socket
	Expect(err).NotTo(HaveOccurred())
	Expect(first.Close()).To(Succeed())
	listener := memnet.Listen()
	var serving sync.WaitGroup
	serving.Go(func() { // ends when the listener is closed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			memory.Server().ServeConn(conn)
		}
	})
	DeferCleanup(memory.Close)
	DeferCleanup(serving.Wait) // a client may connect at the very end
	DeferCleanup(listener.Close)
	return memory, listener.Addr()
}

// NewProxy returns a proxy before the server, which ends with the spec.
func (on *Redis) NewProxy() *faultproxy.Proxy {
	GinkgoHelper()
	proxy, err := faultproxy.New(on.Addr)
	Expect(err).NotTo(HaveOccurred())
	proxy.LeaveQuestions(true) // what a fault hits is the server, and not one connection
	DeferCleanup(proxy.Close)
	return proxy
}

// ConnectThrough returns a Client through a proxy, which ends with the spec.
func (on *Redis) ConnectThrough(proxy *faultproxy.Proxy) *redislock.Client {
	locks := redislock.New(Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB}))
	DeferCleanup(locks.Close)
	return locks
}

// Age lets d pass for every key at once, without waiting for it.
func (on *Redis) Age(ctx context.Context, d time.Duration) {
	if on.Memory != nil {
		on.Memory.FastForward(d)
		return
	}
	const script = `for _, key in ipairs(redis.call('KEYS', '*')) do
		local left = redis.call('PTTL', key)
		if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
	end`
	Expect(on.Client.Eval(ctx, script, nil, d.Milliseconds()).Err()).To(MatchError(redis.Nil))
}

// Keys returns the names of all keys there are.
func (on *Redis) Keys(ctx context.Context) []string {
	return on.Client.Keys(ctx, "*").Val()
}

// sharedServer returns the address and the database of a real server that is empty for the taking: the one that
// namedServer names, or one that is started for the run.
var sharedServer = func() func() (string, int) {
	var server *redistest.Server
	AfterSuite(func() {
		if server != nil {
			Expect(server.Close()).To(Succeed())
		}
		for _, server := range quorumServers {
			Expect(server.Close()).To(Succeed())
		}
	})
	return func() (string, int) {
		GinkgoHelper()
		if named := os.Getenv(namedServer); named != "" {
			return named, 9
		}
		RequireServer()
		if server == nil {
			var err error
			server, err = redistest.Start()
			Expect(err).NotTo(HaveOccurred())
		}
		return server.Addr(), 0
	}
}()

// StartServer returns a real server that only this spec uses, to be broken at will.
func StartServer(config ...string) *redistest.Server {
	GinkgoHelper()
	RequireServer()
	server, err := redistest.Start(config...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	return server
}

// Connect returns a client that ends with the spec.
func Connect(opt *redis.Options) *redis.Client {
	if opt.Dialer == nil && memnet.Has(opt.Addr) {
		opt.Dialer = memnet.Dial
	}
	client := redis.NewClient(opt)
	DeferCleanup(client.Close)
	return client
}
