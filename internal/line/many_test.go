package line_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/race"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = Describe("Of many who wait in line,", Label(spec.OnServer), func() {
	n := 10_000
	if race.Enabled { // which makes all of this ten times as slow
		n = 2000
	}
	queue := &redislock.Options{Queue: true}
	var client *redis.Client
	var locks *redislock.Client

	BeforeEach(func() {
		spec.RequireServer()
		spec.CheckLeaks()
		client = spec.Connect(&redis.Options{Addr: spec.StartServer().Addr()})
		locks = redislock.New(spec.Connect(client.Options()))
		DeferCleanup(locks.Close)
	})

	// marks returns the marks of a line, with their scores.
	marks := func(ctx SpecContext, key string) []redis.Z {
		return client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: spec.LineKey(key), Start: "-inf", Stop: "(0", ByScore: true}).Val()
	}

	It("the first tries delay no beat so that those who stand there already count as dead, and Close ends all", func(ctx SpecContext) {
		holder := redislock.New(client)
		spec.Obtain(ctx, holder, 10*time.Minute, nil, "a", "b")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "b")
		spec.AwaitSubscriptions(ctx, client, "b")
		var all sync.WaitGroup
		errs := make(chan error, n)
		const atOnce, gap = 20, 7 * time.Second // more than two lives
		go func() {                             // ends when all have come
			for i := range n {
				if i%(n/atOnce) == 0 {
					time.Sleep(gap / atOnce)
				}
				all.Go(func() {
					_, err := locks.Obtain(ctx, "a", time.Minute, queue)
					errs <- err
				})
			}
		}()
		least := time.Hour
		Eventually(func() int64 {
			left := time.Duration(0) // without a mark
			for _, mark := range marks(ctx, "b") {
				left = time.UnixMilli(int64(-mark.Score) / 4096).Sub(client.Time(ctx).Val())
			}
			least = min(least, left)
			return client.ZCard(ctx, spec.LineKey("a")).Val()
		}).WithTimeout(30 * time.Second).Should(BeNumerically("==", n+1))
		AddReportEntry("the mark had left at least", least, ReportEntryVisibilityFailureOrVerbose)
		Expect(least).To(And(BeNumerically(">", 0), BeNumerically("<", time.Hour)))

		locks.Close()
		all.Wait()
		close(errs)
		for err := range errs {
			Expect(err).To(MatchError(redislock.ErrClosed))
		}
		Expect(first.Over()).To(MatchError(redislock.ErrClosed))
		Eventually(func() []string { return client.Keys(ctx, "*").Val() }).WithTimeout(10 * time.Second).Should(ConsistOf("a", "b"))
	})

	DescribeTable("all but the last leave while Redis refuses to write, and then the last has the keys at once",
		func(ctx SpecContext, refuse, accept func(context.Context) error) {
			const n = 50
			held := spec.Obtain(ctx, redislock.New(client), time.Minute, nil, "a")
			leaving, leave := context.WithCancel(ctx)
			defer leave()
			var all sync.WaitGroup
			for range n {
				all.Go(func() { _, _ = locks.Obtain(leaving, "a", time.Minute, queue) })
			}
			Eventually(spec.CountWaiters).WithArguments(ctx, locks, "a").WithTimeout(5 * time.Second).Should(Equal(n))
			last := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
			Expect(refuse(ctx)).To(Succeed())
			leave()
			all.Wait()
			time.Sleep(1500 * time.Millisecond) // shorter than a mark lasts
			Expect(accept(ctx)).To(Succeed())
			Eventually(spec.CountWaiters).WithArguments(ctx, locks, "a").WithTimeout(10 * time.Second).Should(Equal(1))
			released := time.Now()
			Expect(held.Release(ctx)).To(Succeed())
			Expect(last.Granted().Release(ctx)).To(Succeed())
			Expect(last.At.Sub(released)).To(BeNumerically("<", 500*time.Millisecond))
		},
		Entry("as a replica", func(ctx context.Context) error { return client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err() },
			func(ctx context.Context) error { return client.Do(ctx, "REPLICAOF", "NO", "ONE").Err() }),
		Entry("without replicas", func(ctx context.Context) error { return client.ConfigSet(ctx, "min-replicas-to-write", "1").Err() },
			func(ctx context.Context) error { return client.ConfigSet(ctx, "min-replicas-to-write", "0").Err() }),
	)

	It("Clients that were made for one request each share one mark, and one subscription", func(ctx SpecContext) {
		held := spec.Obtain(ctx, redislock.New(client), time.Minute, nil, "a")
		var waiters []*spec.Waiter
		for range 100 {
			own := redislock.New(client)
			w := spec.StartWaiter(ctx, own, time.Minute, queue, "a")
			waiters = append(waiters, w)
			go func() { // ends with the wait
				<-w.Done
				own.Close()
			}()
		}
		spec.AwaitSubscriptions(ctx, client, "a")
		Expect(marks(ctx, "a")).To(HaveLen(1))
		Expect(client.PubSubChannels(ctx, "*").Val()).To(HaveLen(1))
		Expect(held.Release(ctx)).To(Succeed())
		for _, w := range waiters {
			Expect(w.Granted().Release(ctx)).To(Succeed())
		}
		Expect(client.Keys(ctx, "*").Val()).To(BeEmpty())
	})
})
