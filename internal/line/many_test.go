package line_test

import (
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
		for range n {
			all.Go(func() {
				_, err := locks.Obtain(ctx, "a", time.Minute, queue)
				errs <- err
			})
		}
		least := time.Hour
		Eventually(func() int64 {
			for _, mark := range marks(ctx, "b") {
				least = min(least, time.UnixMilli(int64(-mark.Score)/4096).Sub(client.Time(ctx).Val()))
			}
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
