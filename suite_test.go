package redislock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/bubble"
	"github.com/redislock/redislock/internal/calm"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/memnet"
	"github.com/redislock/redislock/internal/race"
	"github.com/redislock/redislock/internal/redistest"
)

// suites are the processes that the specs run in. On a real server, those that wait the most have a process, and a server,
// of their own.
var suites = calm.Suites{
	"miniredis":            inMemory + " && !" + quorums,
	"quorums on miniredis": inMemory + " && " + quorums,
	"redis-server":         sharing + " && !" + queueing + " && !" + keeping + " && !" + faults,
	"queueing":             sharing + " && " + queueing,
	"keeping":              sharing + " && " + keeping,
	"faults":               sharing + " && " + faults,
	"quorum of 3":          onServer + " && " + quorumOf(3),
	"quorum of 5":          onServer + " && " + quorumOf(5),
	"slots":                slots,
	"others":               "!" + inMemory + " && !" + sharing + " && !" + quorums + " && !" + slots, // with servers of their own, or none
}

// namedServer names the server for the specs that are content with one, host:port. Without it, one is started.
const namedServer = "REDISLOCK_TEST_REDIS"

func init() { logging.Disable() } // go-redis writes what its errors say as well, and hides what failed among it

// TestMain lets specs leave more garbage: a quarter of their CPU time would go into what the Lua of miniredis leaves.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
	}
	m.Run()
}

func TestRedislock(t *testing.T) {
	RegisterFailHandler(Fail)
	together := os.Getenv(namedServer) == "" // otherwise they empty the one server that they all use
	suites.Run(t, together, runSuite)
}

// runSuite runs the specs of a suite. Those on miniredis run on fake time, in a bubble of synctest: no time passes while
// anything is under way, and none is waited for when nothing is. Their connections are those of memnet.
func runSuite(t *testing.T, suite string, config types.SuiteConfig, reporter types.ReporterConfig) bool {
	if !strings.HasPrefix(suites[suite], inMemory) {
		return calm.RunSpecs(t, suite, config, reporter)
	}
	now := time.Now().Round(0)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // so that os/signal's own goroutine is not in the bubble
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // a bubble begins in the year 2000
		if !RunSpecs(t, suite, config, reporter) {
			os.Exit(1)
		}
		os.Exit(0) // ginkgo leaves a goroutine behind, and synctest would complain
	})
	return false // not reached
}

// What could not run is said once, at the end, with the reason.
var _ = ReportAfterSuite("what was left out", func(report Report) {
	left := map[string]int{}
	for _, spec := range report.SpecReports {
		if spec.State == types.SpecStateSkipped && spec.Failure.Message != "" {
			left[spec.Failure.Message]++
		}
	}
	for reason, specs := range left {
		fmt.Printf("left out: %d specs: %s\n", specs, reason)
	}
})

// onRedis is the Redis that a spec runs on. Its fields are set anew for every spec.
type onRedis struct {
	kind   string
	addr   string
	client *redis.Client
	memory *miniredis.Miniredis // nil on a real server
}

// Labels.
const (
	inMemory = "miniredis"
	onServer = "redis-server"
	sharing  = "one server" // of a suite, which its specs on a real server share
	queueing = "queueing"
	keeping  = "keeping"
	faults   = "faults"
	quorums  = "quorums"
	slots    = "slots"
)

func quorumOf(n int) string { return fmt.Sprintf("quorum of %d", n) }

// describe runs the same specs on miniredis, always, and on a real redis-server, where there is one.
func describe(what string, specs func(on *onRedis), labels ...string) bool {
	for _, kind := range []string{inMemory, onServer} {
		describeOn(kind, what, specs, labels...)
	}
	return true
}

// describeOn runs specs on one kind of Redis: those that the other kind cannot run.
func describeOn(kind, what string, specs func(on *onRedis), labels ...string) bool {
	labels = append(labels, kind)
	if kind == onServer {
		labels = append(labels, sharing)
	}
	return Describe(what+" on "+kind, Label(labels...), func() {
		on := &onRedis{kind: kind}
		BeforeEach(on.begin)
		specs(on)
	})
}

func (on *onRedis) begin(ctx SpecContext) {
	if on.kind == onServer {
		sharedServer() // outlives the spec
	}
	checkLeaks()
	if on.kind == inMemory {
		on.memory, on.addr = startMemory()
		on.client = redis.NewClient(&redis.Options{Addr: on.addr, Dialer: memnet.Dial})
	} else {
		addr, db := sharedServer()
		on.addr = addr
		on.client = redis.NewClient(&redis.Options{Addr: addr, DB: db})
		Expect(on.client.FlushDB(ctx).Err()).To(Succeed())
		Expect(on.client.ScriptFlush(ctx).Err()).To(Succeed()) // what a spec finds does not depend on those before it
	}
	DeferCleanup(on.client.Close)
}

// startMemory returns an empty in-memory Redis that ends with the spec, and its address.
func startMemory() (*miniredis.Miniredis, string) {
	GinkgoHelper()
	memory := miniredis.NewMiniRedis()
	memory.ClockTTL(true)
	first, err := memory.Dial() // starts it without a socket
	Expect(err).NotTo(HaveOccurred())
	Expect(first.Close()).To(Succeed())
	listener := memnet.Listen()
	go func() { // ends when the listener is closed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			memory.Server().ServeConn(conn)
		}
	}()
	DeferCleanup(memory.Close)
	DeferCleanup(listener.Close)
	return memory, listener.Addr()
}

// newProxy returns a proxy before the server, which ends with the spec.
func (on *onRedis) newProxy() *faultproxy.Proxy {
	GinkgoHelper()
	proxy, err := faultproxy.New(on.addr)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	return proxy
}

// connectThrough returns a Client through a proxy, which ends with the spec.
func (on *onRedis) connectThrough(proxy *faultproxy.Proxy) *redislock.Client {
	locks := redislock.New(connect(&redis.Options{Addr: proxy.Addr(), DB: on.client.Options().DB}))
	DeferCleanup(locks.Close)
	return locks
}

// bound returns how long something may take: fake where time is fake, which no other process uses up, and onServer on a
// real server, where a busy machine takes its share.
func bound(kind string, fake, onServer time.Duration) time.Duration {
	if kind == inMemory {
		return fake
	}
	return onServer
}

// schedules returns how many random schedules a test tries: n, or a quarter of them with -short or the race detector. With
// that, they take ten times as long, and each shows the same code to it.
func schedules(n int) int {
	if testing.Short() || race.Enabled {
		return n / 4
	}
	return n
}

// age lets d pass for every key at once, without waiting for it.
func (on *onRedis) age(ctx context.Context, d time.Duration) {
	if on.memory != nil {
		on.memory.FastForward(d)
		return
	}
	const script = `for _, key in ipairs(redis.call('KEYS', '*')) do
		local left = redis.call('PTTL', key)
		if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
	end`
	Expect(on.client.Eval(ctx, script, nil, d.Milliseconds()).Err()).To(MatchError(redis.Nil))
}

// keys returns the names of all keys there are.
func (on *onRedis) keys(ctx context.Context) []string {
	return on.client.Keys(ctx, "*").Val()
}

// checkLeaks fails the spec if a goroutine that it started outlives it, and everything that it cleans up.
func checkLeaks() {
	before := gleak.Goroutines()
	DeferCleanup(func() {
		shared := gleak.IgnoringInBacktrace("leash.(*Process).reap") // of a quorum's server that was started again
		Eventually(gleak.Goroutines).WithTimeout(5 * time.Second).ShouldNot(gleak.HaveLeaked(before, shared))
	})
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
		requireServer()
		if server == nil {
			var err error
			server, err = redistest.Start()
			Expect(err).NotTo(HaveOccurred())
		}
		return server.Addr(), 0
	}
}()

// requireServer skips the spec where there is no redis-server, or fails it where one is required.
func requireServer() {
	GinkgoHelper()
	if err := redistest.Available(); err != nil {
		if os.Getenv("REDISLOCK_TEST_REQUIRE") == "1" {
			Fail(err.Error())
		}
		Skip(err.Error())
	}
}

// startServer returns a real server that only this spec uses, to be broken at will.
func startServer(config ...string) *redistest.Server {
	GinkgoHelper()
	requireServer()
	server, err := redistest.Start(config...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	return server
}

// connect returns a client that ends with the spec.
func connect(opt *redis.Options) *redis.Client {
	if opt.Dialer == nil && memnet.Has(opt.Addr) {
		opt.Dialer = memnet.Dial
	}
	client := redis.NewClient(opt)
	DeferCleanup(client.Close)
	return client
}

// obtain obtains a lock that the spec needs to have.
func obtain(ctx context.Context, locks *redislock.Client, ttl time.Duration, opt *redislock.Options, keys ...string) *redislock.Lock {
	GinkgoHelper()
	lock, err := locks.ObtainMulti(ctx, keys, ttl, opt)
	Expect(err).NotTo(HaveOccurred())
	return lock
}

// lostKeys returns the keys of a LostError.
func lostKeys(err error) []string {
	GinkgoHelper()
	var lost *redislock.LostError
	Expect(errors.As(err, &lost)).To(BeTrue(), "%v is a *LostError", err)
	return lost.Keys
}
