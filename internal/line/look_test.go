package line_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Inspect and Line", func(on *spec.Redis) {
	var locks *redislock.Client
	var now time.Time // of the server

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
		var err error
		now, err = on.Client.Time(ctx).Result()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { on.Client.Del(ctx, spec.LineKey("a")) })
	})

	// ticket is that of a waiter who came so many seconds ago.
	ticket := func(ago int) time.Time { return now.Add(-time.Duration(ago) * time.Second).Truncate(time.Microsecond) }
	stand := func(ctx context.Context, id string, ago int) {
		GinkgoHelper()
		entry := redis.Z{Score: float64(ticket(ago).UnixMicro()), Member: id + " 1 60000 0 token-" + id}
		Expect(on.Client.ZAdd(ctx, spec.LineKey("a"), entry).Err()).To(Succeed())
	}
	const life = 600 // seconds
	mark := func(ctx context.Context, inbox string, left time.Duration) {
		GinkgoHelper()
		mark := redis.Z{Score: spec.Mark(now.Add(left), life, true), Member: "~" + inbox}
		Expect(on.Client.ZAdd(ctx, spec.LineKey("a"), mark).Err()).To(Succeed())
	}
	shown := func(ctx context.Context) (status redislock.Status, tokens []string) {
		GinkgoHelper()
		statuses, err := locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		line, err := locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		for _, w := range line {
			tokens = append(tokens, w.Token)
		}
		return statuses[0], tokens
	}

	It("show only the waiters of inboxes that are live", func(ctx SpecContext) {
		mark(ctx, "dead.1", -time.Millisecond)
		mark(ctx, "early.1", (life+60)*time.Second)
		mark(ctx, "alive.1", life*time.Second)
		mark(ctx, "alive.2", life/2*time.Second)
		mark(ctx, "empty.1", life*time.Second)
		for i, inbox := range []string{"dead.1", "early.1", "unmarked.1", "alive.1", "alive.2"} {
			stand(ctx, inbox+"/1", 100-i)
			stand(ctx, inbox+"/2", 50-i)
		}
		status, tokens := shown(ctx)
		Expect(tokens).To(Equal([]string{"token-alive.1/1", "token-alive.2/1", "token-alive.1/2", "token-alive.2/2"}))
		Expect(status.Waiters).To(Equal(4))
		Expect(status.WaitingSince).To(BeTemporally("==", ticket(97)), "when the first live waiter came")
	})

	DescribeTable("show nobody", func(ctx SpecContext, left time.Duration) {
		stand(ctx, "box.1/1", 10)
		if left != 0 {
			mark(ctx, "box.1", left)
		}
		status, tokens := shown(ctx)
		Expect(tokens).To(BeEmpty())
		Expect(status).To(Equal(redislock.Status{Key: "a"}))
		mark(ctx, "box.1", life*time.Second)
		status, tokens = shown(ctx)
		Expect(tokens).To(HaveLen(1))
		Expect(status.Waiters).To(Equal(1))
	},
		Entry("whose inbox has no mark", time.Duration(0)),
		Entry("whose inbox has missed its deadline", -time.Millisecond),
		Entry("whose inbox has a deadline that is too far ahead", (life+60)*time.Second),
	)

	It("name the process of a waiter, which is the same for all its Redis clients", func(ctx SpecContext) {
		other := redislock.New(spec.Connect(on.Client.Options()))
		DeferCleanup(other.Close)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		queue := &redislock.Options{Queue: true}
		waiters := []*spec.Waiter{
			spec.StartWaiter(ctx, locks, time.Minute, queue, "a"), spec.StartWaiter(ctx, locks, time.Minute, queue, "a"),
			spec.StartWaiter(ctx, other, time.Minute, queue, "a"),
		}
		mark(ctx, "elsewhere", life*time.Second)
		stand(ctx, "elsewhere/1", -3600)
		line, err := locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(line).To(HaveLen(4))
		Expect(line[0].Process).To(MatchRegexp(`^[\w-]{22}$`))
		Expect(line[1].Process).To(Equal(line[0].Process))
		Expect(line[2].Process).To(Equal(line[0].Process))
		Expect(line[3].Process).To(Equal("elsewhere"))
		ids := spec.Line(ctx, on.Client, "a")
		Expect(ids[1]).To(HavePrefix(line[0].Process + "."))
		Expect(ids[2]).To(HavePrefix(line[0].Process + "."))
		for _, w := range waiters {
			w.Cancel()
			Expect(w.Over()).To(MatchError(context.Canceled))
		}
		Expect(held.Release(ctx)).To(Succeed())
	})
})
