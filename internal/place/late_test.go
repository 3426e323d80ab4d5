package place_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Grants that take longer to arrive than their ttl lasts", func(on *spec.Redis) {
	for where := range places {
		Context("on "+where, func() { lateOn(on, where) })
	}
})

func lateOn(on *spec.Redis, where string) {
	ttl, late := 300*time.Millisecond, 400*time.Millisecond
	if where == "a quorum" { // which leaves out a server that takes longer
		ttl, late = 60*time.Millisecond, 85*time.Millisecond
	}
	var locks *redislock.Client
	var tries int // of the last obtain
	f := &faultyPlaces{Redis: on, where: where}
	keys, options := f.keys(), f.options
	BeforeEach(func(ctx SpecContext) {
		if spec.Pipelined {
			Skip("the faults are those of calls that go by themselves")
		}
		if where == "a quorum" {
			on.OnlyInFakeTime("on a busy machine, other servers are late as well, by chance")
		}
		locks = f.begin(ctx, redislock.WithTracer(&redislock.Tracer{
			ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries = end.Tries },
		}))
		lock := spec.Obtain(ctx, locks, time.Minute, options(redislock.Options{}), keys...) // the servers know the scripts, and are known
		Expect(lock.Release(ctx)).To(Succeed())
	})
	slow := func(times int) (heal func()) { return f.broken("obtain", times, faultproxy.DelayReply(late)) }
	obtainLate := func(ctx context.Context, opt redislock.Options) error {
		GinkgoHelper()
		lock, err := locks.ObtainMulti(ctx, keys, ttl, options(opt))
		Expect(lock).To(BeNil())
		return err
	}
	often := redislock.LinearBackoff(time.Millisecond)
	AfterEach(func(ctx SpecContext) { // what was granted is given back, and so is each position in line
		lock := spec.Obtain(spec.Within(ctx, 5*time.Second), locks, time.Minute, options(redislock.Options{RetryStrategy: often}), keys...)
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("are no refusals: the error says how long the answer took", func(ctx SpecContext) {
		heal := slow(0)
		Expect(obtainLate(ctx, redislock.Options{})).To(spec.BeTooLate)
		Expect(obtainLate(ctx, redislock.Options{Explain: true})).To(spec.BeTooLate)
		heal()
	})

	It("end the tries of a strategy when there have been two in a row", func(ctx SpecContext) {
		heal := slow(0)
		for i, strategy := range []redislock.RetryStrategy{often, redislock.LimitRetry(often, 1), redislock.LimitRetry(often, 0)} {
			Expect(obtainLate(spec.Within(ctx, 10*time.Second), redislock.Options{RetryStrategy: strategy, Explain: true})).To(spec.BeTooLate)
			Expect(tries).To(Equal(min(2, 3-i)))
		}
		heal()
	})

	It("end a wait in line when there have been two in a row", func(ctx SpecContext) {
		heal := slow(0)
		for _, ctx := range []context.Context{ctx, spec.Within(ctx, 10*time.Second)} {
			Expect(on.Client.FlushAll(ctx).Err()).To(Succeed()) // what the last obtain was granted is freed in the background
			Expect(obtainLate(ctx, redislock.Options{Queue: true, Explain: true})).To(spec.BeTooLate)
			Expect(tries).To(Equal(2))
		}
		heal()
	})

	for name, opt := range map[string]redislock.Options{"a strategy": {RetryStrategy: often}, "a wait in line": {Queue: true}} {
		It("do not end "+name+" if it was chance", func(ctx SpecContext) {
			slow(1)
			lock := spec.Obtain(spec.Within(ctx, 10*time.Second), locks, ttl, options(opt), keys...)
			Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(-ttl)))
		})
	}

	It("are counted anew after a refusal that came in time", func(ctx SpecContext) {
		if where == "two slots" {
			Skip("tries after the first ask one slot after the other, so each slow answer makes another try late")
		}
		other := options(redislock.Options{RetryStrategy: often})
		var held *redislock.Lock
		slow(1)
		strategy := &thoughtful{answer: func(times int) time.Duration {
			switch times {
			case 1: // after a grant that came too late
				held = spec.Obtain(spec.Within(ctx, 5*time.Second), locks, time.Minute, other, keys...)
			case 2: // after a refusal
				Expect(held.Release(ctx)).To(Succeed())
				slow(1)
			}
			return time.Millisecond
		}}
		opt := options(redislock.Options{RetryStrategy: strategy})
		lock := spec.Obtain(spec.Within(ctx, 10*time.Second), locks, ttl, opt, keys...)
		Expect(strategy.times).To(BeNumerically(">=", 3))
		_ = lock.Release(ctx)
	})

	It("are what the error wraps if ctx ends before the next try", func(ctx SpecContext) {
		heal := slow(0)
		err := obtainLate(spec.Within(ctx, 2*late), redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Minute)})
		Expect(err).To(And(MatchError(redislock.ErrNotObtained), MatchError(redislock.ErrLapsed), MatchError(context.DeadlineExceeded)))
		Expect(err).To(MatchError(ContainSubstring("the last try: redislock: not obtained: the grant took")))
		heal()
	})

	It("are no silence of Redis, if it is the ttl that limits a strategy", func(ctx SpecContext) {
		heal := slow(0)
		err := obtainLate(context.WithoutCancel(ctx), redislock.Options{RetryStrategy: often})
		Expect(err).To(And(MatchError(redislock.ErrNotObtained), MatchError(context.DeadlineExceeded)))
		silence := And(MatchError(redislock.ErrLapsed), MatchError(ContainSubstring("no answer from Redis within the ttl of "+ttl.String())))
		if on.Kind == spec.OnServer { // a busy machine may bring the answer at the end of the ttl, or begin the try a little late
			silence = MatchError(Or(ContainSubstring("the grant took"), ContainSubstring("no answer from Redis")))
		}
		Expect(err).To(silence)
		heal()
	})
}

// thoughtful is a strategy that is asked how long to wait, for the first time, the second time and so on.
type thoughtful struct {
	answer func(times int) time.Duration
	times  int
}

func (t *thoughtful) NextBackoff() time.Duration {
	t.times++
	return t.answer(t.times)
}
