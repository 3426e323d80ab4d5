package script_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOn(spec.OnServer, "When Redis is out of memory,", func(*spec.Redis) {
	var client *redis.Client
	var locks *redislock.Client
	outOfMemory := MatchError(ContainSubstring("OOM"))

	BeforeEach(func() {
		client = spec.Connect(&redis.Options{Addr: spec.StartServer("maxmemory-policy noeviction").Addr()})
		locks = redislock.New(client)
		DeferCleanup(locks.Close)
	})
	fill := func(ctx SpecContext) {
		GinkgoHelper()
		Expect(client.ConfigSet(ctx, "maxmemory", "1").Err()).To(Succeed())
		Expect(client.Set(ctx, "other", "x", 0).Err()).To(outOfMemory)
	}

	It("a lock can be refreshed, also with other metadata, inspected and released", func(ctx SpecContext) {
		for shared, keys := range [][]string{{"a"}, {"b", "c", "d"}} {
			lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Metadata: "m", Shared: keys[:shared]}, keys...)
			fill(ctx)
			Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
			Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Minute))
			Expect(lock.Refresh(ctx, 2*time.Hour, &redislock.Options{Metadata: "half of the work is done"})).To(Succeed())
			Expect(lock.TTL(ctx)).To(BeNumerically("~", 2*time.Hour, time.Minute))
			statuses, err := locks.Inspect(ctx, keys...)
			Expect(err).NotTo(HaveOccurred())
			for _, status := range statuses {
				Expect(status.Metadata).To(Equal("half of the work is done"))
			}
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(client.DBSize(ctx).Val()).To(BeZero())
			Expect(client.ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
		}
	})

	It("an obtain of a shared key that its token has already changes nothing", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "its-own-token", Shared: []string{"a"}, Metadata: "m"}
		held := spec.Obtain(ctx, locks, time.Minute, opt, "a")
		fill(ctx)
		again := *opt
		again.Metadata = "other"
		_, err := locks.Obtain(ctx, "a", time.Minute, &again)
		Expect(err).To(outOfMemory)
		statuses, err := locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].Holders).To(ConsistOf(HaveField("Metadata", "m")))
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("a kept lock is renewed", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Second, &redislock.Options{Metadata: "m"}, "a", "b")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		fill(ctx)
		granted := lock.Until()
		Eventually(lock.Until).WithTimeout(2 * time.Second).Should(BeTemporally(">", granted))
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("no key is taken, and those in line wait until there is memory", func(ctx SpecContext) {
		queue := &redislock.Options{Queue: true}
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, spec.OnlyWoken, "a")
		second := spec.StartWaiter(ctx, locks, time.Minute, spec.OnlyWoken, "a")
		fill(ctx)
		for _, keys := range [][]string{{"free"}, {"free", "too"}} {
			_, err := locks.ObtainMulti(ctx, keys, time.Minute, nil)
			Expect(err).To(outOfMemory)
			_, err = locks.ObtainMulti(ctx, append(keys, "a"), time.Minute, queue)
			Expect(err).To(outOfMemory)
		}
		Consistently(first.Done).WithTimeout(1500 * time.Millisecond).ShouldNot(BeClosed())
		second.Cancel()
		Expect(second.Over()).To(And(MatchError(redislock.ErrNotObtained), MatchError(context.Canceled)), "it does not try meanwhile")
		Expect(client.ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Eventually(func() int64 { return client.DBSize(ctx).Val() }).Should(BeZero())
	})
})
