package redislock_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Fencing tokens", func(on *spec.Redis) {
	var locks *redislock.Client
	fenced := &redislock.Options{FenceKey: "fence"}

	BeforeEach(func() {
		locks = redislock.New(on.Client)
	})

	It("are 0 without FenceKey", func(ctx SpecContext) {
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").FenceToken()).To(BeZero())
	})

	It("rise with every obtain, re-entry included, and are kept without expiry", func(ctx SpecContext) {
		last := int64(0)
		for i := range 20 {
			lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence", Token: "t" + strconv.Itoa(i/2)}, "a")
			Expect(lock.FenceToken()).To(BeNumerically(">", last))
			last = lock.FenceToken()
			Expect(on.Client.Get(ctx, "fence").Val()).To(Equal(strconv.FormatInt(last, 10)))
			Expect(on.Client.PTTL(ctx, "fence").Val()).To(Equal(time.Duration(-1)))
			if i%2 == 1 {
				Expect(lock.Release(ctx)).To(Succeed())
			}
		}
		Expect(on.Keys(ctx)).To(ConsistOf("fence"))
	})

	It("go on rising after the counter was lost", func(ctx SpecContext) {
		before := spec.Obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()
		Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
		time.Sleep(time.Millisecond) // a new counter begins at the server's time
		Expect(spec.Obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()).To(BeNumerically(">", before))
	})

	It("go on rising while the counter is ahead of the clock", func(ctx SpecContext) {
		on.Client.Set(ctx, "fence", "9007199254740989", 0)
		Expect(spec.Obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()).To(BeNumerically("==", 9007199254740990))
		Expect(on.Client.Get(ctx, "fence").Val()).To(Equal("9007199254740990"))
	})

	It("are not minted by a refusal", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "a")
		_, err := locks.Obtain(ctx, "a", time.Minute, fenced)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(on.Keys(ctx)).To(ConsistOf("a"))
	})

	DescribeTable("are refused before anything is written",
		func(ctx SpecContext, counter string) {
			on.Client.Set(ctx, "fence", counter, 0)
			_, err := locks.Obtain(ctx, "a", time.Minute, fenced)
			Expect(err).To(MatchError(ContainSubstring(`fence key "fence" does not hold an integer below 2^53-1`)))
			Expect(on.Keys(ctx)).To(ConsistOf("fence"))
			Expect(on.Client.Get(ctx, "fence").Val()).To(Equal(counter))
		},
		Entry("no number", "many"),
		Entry("a fraction", "1.5"),
		Entry("an exponent", "1e3"),
		Entry("hexadecimal", "0x10"),
		Entry("empty", ""),
		Entry("at the limit", "9007199254740991"),
		Entry("past it", "99999999999999999999999"),
	)
})
