package several_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

// endCircles runs specs of those who wait in a circle. connect returns a Client of its own, as another process has it, and
// keys the keys that are left. A quorum has no permits.
func endCircles(across, permits bool, connect func() *redislock.Client, keys func(context.Context) []string) {
	key := func(i int) string { return fmt.Sprint("key ", i) }
	options := func(change func(*redislock.Options)) *redislock.Options {
		opt := &redislock.Options{Queue: true, AcrossSlots: across}
		if change != nil {
			change(opt)
		}
		return opt
	}
	queue := func() *redislock.Options { return options(nil) }
	left := func(ctx context.Context) []string { return withoutNotes(keys(ctx)) }
	ttl := 20 * time.Second

	// hold obtains a lock, and returns its ctx.
	hold := func(ctx context.Context, locks *redislock.Client, opt *redislock.Options, keys ...string) (context.Context, *redislock.Lock) {
		GinkgoHelper()
		lock := spec.Obtain(ctx, locks, ttl, opt, keys...)
		kept, stop := lock.KeepAlive(ctx)
		DeferCleanup(stop)
		return kept, lock
	}
	gaveUp := func(w *spec.Waiter) *redislock.DeadlockError {
		GinkgoHelper()
		err := w.Over()
		Expect(err).To(And(MatchError(redislock.ErrDeadlock), MatchError(redislock.ErrNotObtained)))
		found, is := errors.AsType[*redislock.DeadlockError](err)
		Expect(is).To(BeTrue(), "%v", err)
		return found
	}
	waits := func(w *spec.Waiter) {
		GinkgoHelper()
		Consistently(w.Done).WithTimeout(2500*time.Millisecond).ShouldNot(BeClosed(), "%v", w.Err)
	}

	for _, n := range []int{1, 2, 3, 8} {
		It(fmt.Sprintf("of %d, the one that came last gives up, and the others go on", n), func(ctx SpecContext) {
			began, gaveUp := time.Now(), 0
			var all sync.WaitGroup
			var mu sync.Mutex // protects gaveUp
			inside := make(chan struct{}, n)
			begin := make(chan struct{})
			for i := range n {
				locks, opt, inner := connect(), queue(), connect()
				opt.Metadata = fmt.Sprint("worker ", i)
				all.Go(func() {
					defer GinkgoRecover()
					outer := []string{key(i)}
					err := locks.Do(ctx, outer, ttl, opt, func(ctx context.Context) error {
						inside <- struct{}{}
						<-begin
						return inner.Do(ctx, []string{key((i + 1) % n)}, ttl, queue(), func(context.Context) error { return nil })
					})
					if err == nil {
						return
					}
					found, is := errors.AsType[*redislock.DeadlockError](err)
					Expect(is).To(BeTrue(), "%v", err)
					Expect(found.Circle).To(HaveLen(n))
					for step, b := range found.Circle {
						at := (i + step + 1) % n
						Expect(b.Key).To(Equal(key(at)))
						Expect(b.Metadata).To(Equal(fmt.Sprint("worker ", at)))
						Expect(b.Token).NotTo(BeEmpty())
						Expect(err.Error()).NotTo(ContainSubstring(b.Token), "a whole token")
					}
					mu.Lock()
					defer mu.Unlock()
					gaveUp++
				})
			}
			for range n {
				Eventually(inside).WithTimeout(5 * time.Second).Should(Receive())
			}
			close(begin)
			all.Wait()
			Expect(gaveUp).To(Equal(1))
			AddReportEntry("time", time.Since(began), ReportEntryVisibilityFailureOrVerbose)
			Eventually(left).WithArguments(ctx).Should(BeEmpty())
		})
	}

	It("is none where a holder waits itself for others, and those who wait for it learn that", func(ctx SpecContext) {
		mine, one := hold(ctx, connect(), queue(), key(0))
		two := spec.Obtain(ctx, connect(), ttl, nil, key(1))
		inner := spec.StartWaiter(mine, connect(), ttl, queue(), key(1))
		outer := spec.StartWaiter(ctx, connect(), ttl, queue(), key(0))
		locks := connect()
		waits := func() []string {
			statuses, err := locks.Inspect(ctx, key(0))
			Expect(err).NotTo(HaveOccurred())
			return statuses[0].Waits
		}
		Eventually(waits).Should(Equal([]string{key(1)}))
		_, err := locks.Obtain(ctx, key(0), ttl, options(func(o *redislock.Options) { o.Queue, o.Explain = false, true }))
		refused, is := errors.AsType[*redislock.RefusedError](err)
		Expect(is).To(BeTrue(), "%v", err)
		Expect(refused.Waits).To(Equal([]string{key(1)}))
		Expect(refused).To(MatchError(ContainSubstring(`, and waits itself for "key 1"`)))
		Consistently(waits).WithTimeout(6 * time.Second).WithPolling(200 * time.Millisecond).Should(Equal([]string{key(1)}))

		spec.Release(ctx, two)
		third := inner.Granted()
		Eventually(waits).WithTimeout(8*time.Second).Should(BeNil(), "its last note ends")
		spec.Release(ctx, one, third)
		spec.Release(ctx, outer.Granted())
		Eventually(left).WithArguments(ctx).Should(BeEmpty())
	})

	It("that goes over a position in line ends", func(ctx SpecContext) {
		mine, one := hold(ctx, connect(), queue(), key(0))
		theirs, two := hold(ctx, connect(), queue(), key(1))
		first := spec.StartWaiter(ctx, connect(), ttl, queue(), key(2), key(0)) // free, but nobody passes it
		second := spec.StartWaiter(theirs, connect(), ttl, queue(), key(2))
		third := spec.StartWaiter(mine, connect(), ttl, queue(), key(1))
		Expect(gaveUp(third).Circle).To(HaveLen(3))
		spec.Release(ctx, one)
		spec.Release(ctx, first.Granted())
		spec.Release(ctx, second.Granted(), two)
		Eventually(left).WithArguments(ctx).Should(BeEmpty())
	})

	It("of readers and writers ends", func(ctx SpecContext) {
		readers := func() *redislock.Options {
			return options(func(o *redislock.Options) { o.Shared = []string{key(0)} })
		}
		mine, one := hold(ctx, connect(), queue(), key(1))
		theirs, two := hold(ctx, connect(), readers(), key(0))
		writer := spec.StartWaiter(ctx, connect(), ttl, queue(), key(0))
		reader := spec.StartWaiter(theirs, connect(), ttl, queue(), key(1))
		behind := spec.StartWaiter(mine, connect(), ttl, readers(), key(0)) // beside the other reader, but behind the writer
		Expect(gaveUp(behind).Circle).To(HaveLen(3))
		spec.Release(ctx, one)
		spec.Release(ctx, reader.Granted(), two)
		spec.Release(ctx, writer.Granted())
		Eventually(left).WithArguments(ctx).Should(BeEmpty())
	})

	if permits {
		It("is none if another could free a permit", func(ctx SpecContext) {
			pool := func() *redislock.Options {
				return options(func(o *redislock.Options) { o.Permits = map[string]int{key(0): 2} })
			}
			theirs, two := hold(ctx, connect(), pool(), key(0))
			_, free := hold(ctx, connect(), pool(), key(0))
			mine, one := hold(ctx, connect(), queue(), key(1))
			inner := spec.StartWaiter(theirs, connect(), ttl, queue(), key(1))
			outer := spec.StartWaiter(mine, connect(), ttl, pool(), key(0))
			waits(outer)
			spec.Release(ctx, free)
			spec.Release(ctx, outer.Granted(), one)
			spec.Release(ctx, inner.Granted(), two)
			Eventually(left).WithArguments(ctx).Should(BeEmpty())
		})

		It("is one if both who have a permit wait for the caller", func(ctx SpecContext) {
			pool := func() *redislock.Options {
				return options(func(o *redislock.Options) { o.Permits = map[string]int{key(0): 2} })
			}
			first, one := hold(ctx, connect(), pool(), key(0))
			second, two := hold(ctx, connect(), pool(), key(0))
			mine, three := hold(ctx, connect(), queue(), key(1))
			inner := spec.StartWaiter(first, connect(), ttl, queue(), key(1))
			other := spec.StartWaiter(second, connect(), ttl, queue(), key(1))
			outer := spec.StartWaiter(mine, connect(), ttl, pool(), key(0))
			Expect(gaveUp(outer).Circle).To(HaveLen(2))
			spec.Release(ctx, three)
			spec.Release(ctx, inner.Granted())
			spec.Release(ctx, other.Granted(), one, two)
			Eventually(left).WithArguments(ctx).Should(BeEmpty())
		})
	}

	It("is none without one: a waiter that has left, and a holder that goes on", func(ctx SpecContext) {
		theirs, two := hold(ctx, connect(), queue(), key(1))
		mine, one := hold(ctx, connect(), queue(), key(0))
		inner := spec.StartWaiter(theirs, connect(), ttl, queue(), key(0))
		inner.Cancel()
		Expect(inner.Over()).To(MatchError(context.Canceled))
		outer := spec.StartWaiter(mine, connect(), ttl, queue(), key(1))
		waits(outer)
		spec.Release(ctx, two)
		spec.Release(ctx, outer.Granted(), one)
		Eventually(left).WithArguments(ctx).Should(BeEmpty())
	})

	It("stands in line: what each waiter wants and holds", func(ctx SpecContext) {
		locks := connect()
		mine, one := hold(ctx, locks, queue(), key(0), key(3))
		_, two := hold(ctx, connect(), queue(), key(1))
		w := spec.StartWaiter(mine, locks, ttl, queue(), key(1), key(2))
		line, err := locks.Line(ctx, key(1))
		Expect(err).NotTo(HaveOccurred())
		Expect(line).To(HaveLen(1))
		Expect(line[0].Wants).To(ConsistOf(key(1), key(2)))
		Expect(line[0].Limit).To(Equal(1))
		Expect(line[0].Holds).To(HaveLen(1))
		Expect(line[0].Holds[0].Token).To(Equal(one.Token()))
		Expect(line[0].Holds[0].Keys).To(ConsistOf(key(0), key(3)))
		statuses, err := locks.Inspect(ctx, key(1), key(0))
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].Line).To(Equal(line))
		Expect(statuses[1].Line).To(BeEmpty())
		w.Cancel()
		Expect(w.Over()).To(MatchError(context.Canceled))
		spec.Release(ctx, one, two)
	})
}

// withoutNotes removes the notes of those who waited, which end by themselves after six seconds.
func withoutNotes(keys []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, keyname.NoteSuffix) })
}

var _ = spec.DescribeOn(spec.OnServer, "A circle", func(on *spec.Redis) {
	It("is found by a user who may not read all that the others hold, nor all that the caller holds elsewhere", func(ctx SpecContext) {
		Expect(on.Client.Do(ctx, "ACL", "SETUSER", "orders", "on", ">pw", "~order*", "&*", "+@all").Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { on.Client.Do(ctx, "ACL", "DELUSER", "orders") })
		options, elsewhere := *on.Client.Options(), spec.StartServer()
		options.Username, options.Password = "orders", "pw"
		connect := func(o *redis.Options) *redislock.Client {
			locks := redislock.New(spec.Connect(o))
			DeferCleanup(locks.Close)
			return locks
		}
		queue, ttl := &redislock.Options{Queue: true}, 20*time.Second
		far := spec.Obtain(ctx, connect(&redis.Options{Addr: elsewhere.Addr()}), ttl, queue, "far")
		mine, theirs := connect(&options), connect(on.Client.Options())
		one := spec.Obtain(ctx, mine, ttl, queue, "order 1")
		two := spec.Obtain(ctx, theirs, ttl, queue, "order 2", "stock")
		outer, stop := far.KeepAlive(ctx)
		DeferCleanup(stop)
		inner, stop := one.KeepAlive(outer)
		DeferCleanup(stop)
		other, stop := two.KeepAlive(ctx)
		DeferCleanup(stop)
		first := spec.StartWaiter(other, theirs, ttl, queue, "order 1")
		last := spec.StartWaiter(inner, mine, ttl, queue, "order 2")
		Expect(last.Over()).To(MatchError(redislock.ErrDeadlock))
		spec.Release(ctx, one)
		spec.Release(ctx, first.Granted(), two, far)
		Eventually(func() []string { return withoutNotes(on.Keys(ctx)) }).Should(BeEmpty())
	})

	endCircles(false, true, func() *redislock.Client {
		locks := redislock.New(spec.Connect(on.Client.Options()))
		DeferCleanup(locks.Close)
		return locks
	}, on.Keys)
})

// The round has failed by then. So only its late answers give the waiter a ticket, and without one it does not search.
var _ = spec.DescribeQuorum("a circle", func(on *spec.Quorum) {
	It("ends even if the one that came last was answered late", func(ctx SpecContext) {
		on.Warm(ctx)
		limited, cancel := context.WithTimeout(ctx, 30*time.Second) // without a deadline, it would fail
		DeferCleanup(cancel)
		locks, queue, ttl := on.Connect(), &redislock.Options{Queue: true}, 20*time.Second
		one, two := spec.Obtain(ctx, locks, ttl, queue, "one"), spec.Obtain(ctx, locks, ttl, queue, "two")
		mine, stop := one.KeepAlive(limited)
		DeferCleanup(stop)
		theirs, stop := two.KeepAlive(limited)
		DeferCleanup(stop)
		first := spec.StartWaiter(theirs, locks, ttl, queue, "one")
		Eventually(func() ([]redislock.Waiter, error) { return locks.Line(ctx, "one") }).Should(HaveLen(1))
		on.Fail(len(on.Servers), (*spec.Server).Hang)
		last := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(mine, "two", ttl, queue)
			last <- err
		}()
		time.Sleep(400 * time.Millisecond)
		on.Fail(len(on.Servers), (*spec.Server).Restore)
		Eventually(last).WithTimeout(8 * time.Second).Should(Receive(MatchError(redislock.ErrDeadlock)))
		spec.Release(ctx, one)
		spec.Release(ctx, first.Granted(), two)
		Eventually(func() []string { return withoutNotes(on.LeftKeys(ctx)) }).Should(BeEmpty())
	})
})

var _ = spec.DescribeQuorumOf(spec.OnServer, 3, "a circle", func(on *spec.Quorum) {
	endCircles(false, false, func() *redislock.Client { return on.Connect() }, on.LeftKeys)
})

var _ = Describe("On a Cluster, a circle", Label(spec.OnServer), Ordered, ContinueOnFailure, func() {
	var addrs []string
	var nodes []*redis.Client
	connect := func() *redislock.Client {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		DeferCleanup(client.Close)
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		return locks
	}
	left := func(ctx context.Context) (keys []string) {
		for _, node := range nodes {
			keys = append(keys, node.Keys(ctx, "*").Val()...)
		}
		return keys
	}
	BeforeAll(func() {
		cluster := spec.StartCluster()
		addrs, nodes = cluster.Addrs(), nil
		for _, addr := range addrs {
			nodes = append(nodes, spec.Connect(&redis.Options{Addr: addr}))
		}
	})

	endCircles(true, true, connect, left)
	randomCircles(true, func() []*redislock.Client {
		return []*redislock.Client{connect(), connect(), connect(), connect()}
	}, disturbing(func() []*redis.Client { return nodes }))
})
