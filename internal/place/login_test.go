package place_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Where passwords are replaced, the server may know the new one before a program does.
var _ = spec.DescribeOn(spec.OnServer, "While the password is the old one,", func(on *spec.Redis) {
	const late = 1500 * time.Millisecond

	var password atomic.Pointer[string]
	var locks *redislock.Client
	know := func(is string) { password.Store(&is) }
	BeforeEach(func(ctx SpecContext) {
		know("old")
		Expect(on.Client.Do(ctx, "ACL", "SETUSER", "tenant", "on", ">old", "~*", "&*", "+@all").Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { on.Client.Do(ctx, "ACL", "DELUSER", "tenant") })
		client := spec.Connect(&redis.Options{
			Addr: on.Addr, DB: on.Client.Options().DB,
			CredentialsProvider: func() (string, string) { return "tenant", *password.Load() },
		})
		locks = redislock.New(client)
		DeferCleanup(locks.Close)
	})
	// replace replaces the password on the server. The program knows the new one late.
	replace := func(ctx context.Context) {
		GinkgoHelper()
		Expect(on.Client.Do(ctx, "ACL", "SETUSER", "tenant", "resetpass", ">new").Err()).To(Succeed())
		Expect(on.Client.Do(ctx, "CLIENT", "KILL", "USER", "tenant").Err()).To(Succeed())
		time.AfterFunc(late, func() { know("new") })
	}

	It("a Release goes on", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, 10*time.Minute, nil, "a")
		replace(ctx)
		Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("WRONGPASS")))
		Eventually(on.Client.Exists).WithArguments(ctx, "a").WithTimeout(late + 5*time.Second).
			Should(HaveField("Val()", BeZero()))
	})

	It("a wait with a deadline goes on, also before its first answer", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "a")
		replace(ctx)
		spec.Obtain(spec.Within(ctx, 10*time.Second), locks, time.Minute, &redislock.Options{Queue: true}, "b")
	})

	It("a wait in line goes on", func(ctx SpecContext) {
		holder := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a")
		waiter := spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
		replace(ctx)
		time.Sleep(late / 2)
		Expect(holder.Release(ctx)).To(Succeed())
		waiter.Granted()
	})

	It("a first call without a deadline fails at once", func() {
		replace(context.Background())
		start := time.Now()
		_, err := locks.Obtain(context.Background(), "a", time.Minute, &redislock.Options{Queue: true})
		Expect(err).To(MatchError(ContainSubstring("WRONGPASS")))
		Expect(time.Since(start)).To(BeNumerically("<", late/2))
	})
})
