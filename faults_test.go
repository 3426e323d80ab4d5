package redislock_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
)

// running matches the requests that run one of our scripts, or its joint one.
func running(name string) func(args []string) bool {
	var names []string // by which a request goes
	for _, file := range []string{name, name + "_each"} {
		if _, err := os.Stat(file + ".lua"); file != name && os.IsNotExist(err) {
			continue
		}
		text := source(file)
		sum := sha1.Sum([]byte(text))
		names = append(names, "evalsha "+hex.EncodeToString(sum[:]), "eval "+text)
	}
	return func(args []string) bool {
		return len(args) > 1 && slices.Contains(names, strings.ToLower(args[0])+" "+args[1])
	}
}

// soon is how long a call may take to return after its ctx has ended. It takes a few milliseconds; the rest is for busy
// machines. The client's own timeouts are longer.
const soon = time.Second

// faultyRedis is a Redis behind a network that can be broken.
type faultyRedis struct {
	*onRedis

	proxy *faultproxy.Proxy
	last  *redis.Client // the one that was connected last
}

// describeFaulty runs specs of what something does through a faulty network. Every script is known to the server.
func describeFaulty(what string, specs func(on *faultyRedis)) bool {
	return describe("Through a faulty network,", func(plain *onRedis) {
		on := &faultyRedis{onRedis: plain}
		BeforeEach(func(ctx SpecContext) {
			on.proxy = on.newProxy()
			for _, script := range []string{"obtain", "obtain_each", "refresh", "release", "release_each", "pttl", "inspect"} {
				Expect(on.client.ScriptLoad(ctx, source(script)).Err()).To(Succeed())
			}
		})
		Describe(what, func() { specs(on) })
	}, faults)
}

// broken makes the next times runs of a script suffer the fault, and all of them if times is 0.
func (on *faultyRedis) broken(script string, times int, action faultproxy.Action) *faultproxy.Fault {
	return on.proxy.Add(faultproxy.Rule{Match: running(script), Times: times, Action: action})
}

func (on *faultyRedis) executed(script string) int { return on.proxy.Executed(running(script)) }

func (on *faultyRedis) requested(script string) int { return on.proxy.Requests(running(script)) }

// connectBy returns a locking client through the proxy, with options that change may change.
func (on *faultyRedis) connectBy(change func(*redis.Options)) *redislock.Client {
	opt := &redis.Options{Addr: on.proxy.Addr(), ReadTimeout: 5 * time.Second}
	if change != nil {
		change(opt)
	}
	on.last = connect(opt)
	locks := redislock.New(on.last)
	DeferCleanup(locks.Close) // so that cleanups under way need not wait
	return locks
}

func (on *faultyRedis) timingOut(after time.Duration) *redislock.Client {
	return on.connectBy(func(opt *redis.Options) { opt.ReadTimeout = after })
}

// disconnect ends all connections and refuses new ones. The client knows it: by itself, go-redis sees an idle connection
// break only where that is a socket of Unix.
func (on *faultyRedis) disconnect(ctx context.Context) {
	on.proxy.RefuseConnections(true)
	on.proxy.CutAll()
	for on.last.PoolStats().TotalConns > 0 {
		_ = on.last.Ping(within(ctx, 10*time.Millisecond))
	}
}

// truthful checks that a lock does not claim to last longer than its keys do.
func (on *faultyRedis) truthful(ctx context.Context, lock *redislock.Lock) {
	GinkgoHelper()
	for _, key := range lock.Keys() {
		if until := lock.Until(); until.After(time.Now()) {
			left := on.client.PTTL(ctx, key).Val()
			Expect(until).To(BeTemporally("<=", time.Now().Add(left+time.Millisecond)))
		}
	}
}

// within returns a ctx that ends after d.
func within(ctx context.Context, d time.Duration) context.Context {
	limited, cancel := context.WithTimeout(ctx, d)
	DeferCleanup(cancel)
	return limited
}

var _ = describeFaulty("TTL, Attach and Inspect", func(on *faultyRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = on.connectBy(nil)
	})

	It("return at once when ctx ends, and are resent when they can be", func(ctx SpecContext) {
		lock := obtain(ctx, locks, time.Minute, nil, "a")
		on.broken("pttl", 1, faultproxy.CutAfterReplyBytes(0))
		on.broken("inspect", 1, faultproxy.CutAfterReplyBytes(0))
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(locks.Inspect(ctx, "a")).To(HaveLen(1))

		on.broken("pttl", 1, faultproxy.BlackHole())
		on.broken("inspect", 2, faultproxy.BlackHole())
		start := time.Now()
		_, err := lock.TTL(within(ctx, 50*time.Millisecond))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(err).To(MatchError(ContainSubstring(`redislock: ttl "a"`)))
		_, err = locks.Inspect(within(ctx, 50*time.Millisecond), "a")
		Expect(err).To(MatchError(context.DeadlineExceeded))
		_, err = locks.Attach(within(ctx, 50*time.Millisecond), []string{"a"}, lock.Token())
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(time.Since(start)).To(BeNumerically("<", soon))
		on.proxy.CutAll()
	})
})

var _ = describeOn(onServer, "While the server hangs", func(_ *onRedis) {
	It("every method returns when its ctx ends", func(ctx SpecContext) {
		server := startServer()
		client := connect(&redis.Options{Addr: server.Addr()})
		locks := redislock.New(client)
		lock := obtain(ctx, locks, time.Minute, nil, "a")
		Expect(server.Pause()).To(Succeed())
		DeferCleanup(server.Resume)
		for _, method := range []struct {
			name string
			call func(context.Context) error
		}{
			{"Obtain", func(ctx context.Context) error { _, err := locks.Obtain(ctx, "b", time.Minute, nil); return err }},
			{"TTL", func(ctx context.Context) error { _, err := lock.TTL(ctx); return err }},
			{"Inspect", func(ctx context.Context) error { _, err := locks.Inspect(ctx, "a"); return err }},
			{"Attach", func(ctx context.Context) error { _, err := locks.Attach(ctx, []string{"a"}, "t"); return err }},
			{"Refresh", func(ctx context.Context) error { return lock.Refresh(ctx, time.Minute, nil) }},
			{"Release", lock.Release}, // the last, for it gives the lock up
		} {
			limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			err := method.call(limited)
			deadline, _ := limited.Deadline()
			late := time.Since(deadline)
			cancel()
			Expect(err).To(MatchError(context.DeadlineExceeded), method.name)
			Expect(late).To(BeNumerically("<", soon), method.name)
			AddReportEntry(method.name, late.String(), ReportEntryVisibilityFailureOrVerbose)
		}
		Expect(server.Resume()).To(Succeed())
		Eventually(func() []string { return client.Keys(ctx, "*").Val() }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})
