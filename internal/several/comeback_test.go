package several_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = Describe("In line across slots in memory,", Label(spec.InMemory), func() {
	var own []*redis.Client
	var locks, other *redislock.Client
	across := &redislock.Options{AcrossSlots: true, Queue: true}

	BeforeEach(func() {
		servers := []*spec.MemoryServer{spec.NewMemoryServer(), spec.NewMemoryServer(), spec.NewMemoryServer()}
		own = nil
		for _, s := range servers {
			DeferCleanup(s.End)
			client := s.Connect(0, nil)
			DeferCleanup(client.Close)
			own = append(own, client)
		}
		connect := func(number int) *redislock.Client {
			cluster := spec.NewMemoryCluster(servers, number, nil)
			DeferCleanup(cluster.Close)
			locks := redislock.New(cluster)
			DeferCleanup(locks.Close)
			return locks
		}
		locks, other = connect(spec.Ours), connect(spec.Theirs)
	})

	at := func(ctx context.Context, key string) *redis.Client {
		for _, client := range own {
			if client.Exists(ctx, spec.LineKey(key)).Val() > 0 {
				return client
			}
		}
		return nil
	}

	It("a waiter that one slot has granted keeps its position there", func(ctx SpecContext) {
		held := spec.Obtain(ctx, other, time.Minute, nil, "b")
		waiting := make(chan error, 1)
		go func() {
			_, err := locks.ObtainMulti(spec.Within(ctx, 40*time.Second), []string{"a", "b"}, time.Minute, across)
			waiting <- err
		}()
		time.Sleep(2 * time.Second)
		line := at(ctx, "a")
		Expect(line).NotTo(BeNil())
		for range 18 {
			time.Sleep(time.Second)
			Expect(at(ctx, "a")).NotTo(BeNil(), "the line")
			_, err := other.Obtain(ctx, "a", time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
		}
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(waiting).Should(Receive(BeNil()))
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "In line at several servers, waiters", func(on *spec.Quorum) {
	It("come back as often as a server that has granted them forgets their line", func(ctx SpecContext) {
		held := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		w := spec.StartWaiter(ctx, on.Locks, time.Minute, &redislock.Options{Queue: true}, "a")
		time.Sleep(2 * time.Second)
		for i := range 3 {
			on.Servers[0].Memory.LoseMemory()
			Eventually(func() []string { return spec.Line(ctx, on.Servers[0].Own, "a") }).WithTimeout(3*time.Second).
				Should(HaveLen(1), fmt.Sprint("time ", i))
			time.Sleep(5 * time.Second)
			Expect(spec.Line(ctx, on.Servers[0].Own, "a")).To(HaveLen(1))
		}
		Expect(held.Release(ctx)).To(Succeed())
		Expect(w.Granted().Release(ctx)).To(Succeed())
	})

	It("come back all, although that server has granted 300 of them", func(ctx SpecContext) {
		var waiters []*spec.Waiter
		var held []*redislock.Lock
		for i := range 300 {
			key := fmt.Sprint("k", i)
			held = append(held, spec.Obtain(ctx, on.Locks, 10*time.Minute, nil, key))
			waiters = append(waiters, spec.StartWaiter(ctx, on.Locks, time.Minute, &redislock.Options{Queue: true}, key))
		}
		time.Sleep(3 * time.Second)
		on.Servers[0].Memory.LoseMemory()
		Eventually(func() (n int) {
			for i := range waiters {
				n += len(spec.Line(ctx, on.Servers[0].Own, fmt.Sprint("k", i)))
			}
			return n
		}).WithTimeout(10 * time.Second).WithPolling(time.Second).Should(Equal(300))
		for i, w := range waiters {
			Expect(held[i].Release(ctx)).To(Succeed())
			Expect(w.Granted().Release(ctx)).To(Succeed())
		}
	})
})

var _ = Describe("In line across slots in memory, tries", Label(spec.InMemory), func() {
	DescribeTable("come when the last key is free, and seldom before", func(ctx SpecContext, first bool) {
		servers := []*spec.MemoryServer{spec.NewMemoryServer(), spec.NewMemoryServer(), spec.NewMemoryServer()}
		for _, s := range servers {
			DeferCleanup(s.End)
		}
		connect := func(number int) redislock.RedisClient {
			cluster := spec.NewMemoryCluster(servers, number, nil)
			DeferCleanup(cluster.Close)
			return cluster
		}
		tries := 0
		locks := redislock.New(connect(spec.Ours), redislock.WithTracer(&redislock.Tracer{
			ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries = end.Tries },
		}))
		DeferCleanup(locks.Close)
		other := redislock.New(connect(spec.Theirs))
		DeferCleanup(other.Close)
		crashed := spec.Obtain(ctx, other, 20*time.Second, nil, "b")
		var a *redislock.Lock
		if first {
			a = spec.Obtain(ctx, other, time.Minute, nil, "a")
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := locks.ObtainMulti(spec.Within(ctx, 40*time.Second), []string{"a", "b"}, time.Minute,
				&redislock.Options{AcrossSlots: true, Queue: true})
			waiting <- err
		}()
		time.Sleep(5 * time.Second)
		if first {
			Expect(a.Release(ctx)).To(Succeed())
		}
		var err error
		Eventually(waiting).WithTimeout(30 * time.Second).WithPolling(time.Millisecond).Should(Receive(&err))
		Expect(err).NotTo(HaveOccurred())
		GinkgoWriter.Println("tries", tries, "late", time.Since(crashed.Until()))
		Expect(time.Since(crashed.Until())).To(BeNumerically("<", 300*time.Millisecond))
		Expect(tries).To(BeNumerically("<", 12))
	}, Entry("and a is free", false), Entry("and a was held", true))
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "In line at several servers, tries", func(on *spec.Quorum) {
	It("are few while one server grants", func(ctx SpecContext) {
		var clients []redislock.RedisClient
		for _, s := range on.Servers {
			clients = append(clients, s.Client)
		}
		tries := 0
		locks := redislock.NewQuorum(clients, redislock.WithTracer(&redislock.Tracer{
			ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries = end.Tries },
		}))
		DeferCleanup(locks.Close)
		held := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		waiter := spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
		time.Sleep(2 * time.Second)
		on.Servers[0].Memory.LoseMemory()
		time.Sleep(20 * time.Second)
		Expect(held.Release(ctx)).To(Succeed())
		Expect(waiter.Granted().Release(ctx)).To(Succeed())
		GinkgoWriter.Println("tries", tries)
		Expect(tries).To(BeNumerically("<", 40))
	})
})
