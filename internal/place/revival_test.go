package place_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/incarnation"
	"github.com/redislock/redislock/internal/spec"
)

var _ = spec.DescribeOn(spec.InMemory, "Keys that a refresh puts back under a guard", func(on *spec.Redis) {
	const maxTTL = 10 * time.Second
	var proxy *faultproxy.Proxy
	var seen *spec.Recorder
	var restored []redislock.Restored
	var lock *redislock.Lock

	BeforeEach(func(ctx SpecContext) {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		incarnation.Of(on.Memory)
		proxy = on.NewProxy()
		client := spec.Connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 300 * time.Millisecond})
		seen, restored = &spec.Recorder{}, nil
		tracer := seen.Tracer()
		tracer.Restored = func(_ context.Context, e redislock.Restored) { restored = append(restored, e) }
		locks := redislock.New(client, redislock.WithGuard(maxTTL, 0), redislock.WithTracer(tracer))
		DeferCleanup(locks.Close)
		_, err := locks.Obtain(ctx, "a", maxTTL, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained)) // the first use closes the guard
		time.Sleep(maxTTL + time.Second)
		lock = spec.Obtain(ctx, locks, maxTTL, nil, "a")
	})

	broken := func(script string, action faultproxy.Action) {
		proxy.Add(faultproxy.Rule{Match: spec.Running(script), Times: 1, Action: action})
	}

	It("after a release are released again, also if that refresh was never answered", func(ctx SpecContext) {
		on.Memory.FlushAll()
		broken("refresh", faultproxy.DelayRequest(800*time.Millisecond)) // the client gives it up after 300 ms
		Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), maxTTL, nil)).To(MatchError(context.DeadlineExceeded))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(proxy.Executed(spec.Running("refresh"))).To(Equal(1))
		Expect(on.Client.Exists(ctx, "a").Val()).To(BeZero())
	})

	It("are reported, also if a renewal has put them back that gains nothing beside a Refresh", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		broken("refresh", faultproxy.DelayReply(250*time.Millisecond))
		on.Memory.FlushAll()
		Eventually(func() int64 { return on.Client.Exists(ctx, "a").Val() }).WithTimeout(maxTTL).Should(Equal(int64(1)))
		Expect(lock.Refresh(ctx, maxTTL, nil)).To(Succeed())
		time.Sleep(time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(restored).To(Equal([]redislock.Restored{{Keys: []string{"a"}, Back: []string{"a"}}}))
		Expect(lock.Release(ctx)).To(Succeed())
	})
})
