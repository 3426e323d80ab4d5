package several_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("a lock", func(on *spec.Quorum) {
	It("is on all servers, and on none after its release", func(ctx SpecContext) {
		sent := time.Now()
		lock, err := on.Locks.ObtainMulti(ctx, []string{"a", "b", "a"}, time.Minute, &redislock.Options{Metadata: "me and you"})
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Key()).To(Equal("a"))
		Expect(lock.Keys()).To(Equal([]string{"a", "b"}))
		Expect(lock.Token()).To(HaveLen(22))
		Expect(lock.Metadata()).To(Equal("me and you"))
		Expect(lock.FenceToken()).To(BeZero())
		Expect(lock.Until()).To(BeTemporally("~", sent.Add(59_399*time.Millisecond), 500*time.Millisecond))
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Minute, time.Second))
		for _, key := range lock.Keys() {
			Eventually(on.Values).WithArguments(ctx, key).Should(Equal(spec.Same(len(on.Servers), lock.Token()+" me and you")))
		}
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
		Expect(lock.TTL(ctx)).To(BeZero())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Equal(redislock.ErrNotObtained))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("shares no key with another, and a refused obtain leaves nothing behind", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "b", "c")
		Eventually(on.Values).WithArguments(ctx, "c").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		for _, keys := range [][]string{{"a", "b"}, {"c"}, {"c", "d", "e"}} {
			_, err := on.Connect().ObtainMulti(ctx, keys, time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
		}
		Consistently(on.LeftKeys).WithArguments(ctx).WithTimeout(50 * time.Millisecond).Should(HaveLen(2 * len(on.Servers)))
		spec.Obtain(ctx, on.Locks, time.Minute, nil, "a", "d")
	})

	It("is obtained after a retry, and by a waiter in line", func(ctx SpecContext) {
		for _, opt := range []*redislock.Options{
			{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}, {Queue: true},
		} {
			lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a", "b")
			done := make(chan error)
			go func() {
				next, err := on.Locks.ObtainMulti(ctx, []string{"b", "c"}, time.Minute, opt)
				if err == nil {
					err = next.Release(ctx)
				}
				done <- err
			}()
			Consistently(done).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(done).Should(Receive(BeNil()))
		}
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("says what is in the way", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "me"}, "a")
		_, err := on.Locks.ObtainMulti(ctx, []string{"b", "a"}, time.Minute, &redislock.Options{Explain: true})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		refused := spec.Refusal(err)
		Expect(refused.Key).To(Equal("a"))
		Expect(refused.Token).To(Equal(lock.Token()))
		Expect(refused.Metadata).To(Equal("me"))
	})

	It("does not span slots", func(ctx SpecContext) {
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, &redislock.Options{AcrossSlots: true})
		Expect(err).To(MatchError(redislock.ErrInvalid))
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "an obtain", func(on *spec.Quorum) {
	It("refuses soon although a server hangs, and is granted soon after a release", func(ctx SpecContext) {
		on.Warm(ctx)
		held := spec.Obtain(ctx, on.ConnectAs(spec.Theirs, nil), time.Hour, nil, "a")
		time.Sleep(100 * time.Millisecond)
		on.Servers[0].Hang()
		start := time.Now()
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(time.Since(start)).To(BeNumerically("<", 500*time.Millisecond))
		time.Sleep(time.Minute)
		first := spec.StartWaiter(ctx, on.Locks, time.Minute, &redislock.Options{Queue: true}, "a")
		time.Sleep(2 * time.Second)
		released := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		lock := first.Granted()
		Expect(first.At.Sub(released)).To(BeNumerically("<", 1500*time.Millisecond))
		on.Servers[0].Restore()
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("refuses with the holder that a majority has, and not with what one server has left of another", func(ctx SpecContext) {
		for i, s := range on.Servers {
			Expect(s.Own.Set(ctx, "a", "stale", time.Hour).Err()).To(Succeed())
			lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
			_, err := on.ConnectAs(spec.Theirs, nil).Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
			Expect(err).To(HaveField("Token", lock.Token()), "with something left at server %d", i+1)
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(s.Own.Del(ctx, "a").Err()).To(Succeed())
		}
	})

	It("holds nothing between two tries, although a grant was sent twice", func(ctx SpecContext) {
		for _, s := range on.Servers[1:] {
			Expect(s.Own.Set(ctx, "a", "other", time.Hour).Err()).To(Succeed())
		}
		var sent atomic.Int64
		obtains := spec.Running("obtain")
		on.Break(0, faultproxy.Rule{Client: spec.Ours, Action: faultproxy.CutClient(), Match: func(args []string) bool {
			return obtains(args) && sent.Add(1)%2 == 1
		}})
		limited, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := on.Locks.Obtain(limited, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Second)})
			ended <- err
		}()
		time.Sleep(time.Second)
		Expect(sent.Load()).To(BeNumerically(">", 1))
		Expect(has(ctx, on, 0)).To(BeZero())
		cancel()
		Eventually(ended).Should(Receive(MatchError(context.Canceled)))
	})

	It("leaves nothing behind when Close comes between two rounds of an obtain, or while one goes on", func(ctx SpecContext) {
		for _, s := range on.Servers[:2] { // so a round is split
			Expect(s.Own.Set(ctx, "a", s.Name, time.Hour).Err()).To(Succeed())
		}
		for i := range 40 {
			locks := on.Connect()
			ended := make(chan error, 1)
			go func() {
				_, err := locks.Obtain(ctx, "a", time.Minute, nil)
				ended <- err
			}()
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
			Expect(locks.Close()).To(Succeed())
			Expect(has(ctx, on, 2)).To(BeZero(), "closed after %d × 200 µs", i)
			err := <-ended
			Expect(errors.Is(err, redislock.ErrClosed) || err == redislock.ErrNotObtained).To(BeTrue(), "%v", err)
		}
		for _, s := range on.Servers[:2] {
			Expect(s.Own.Del(ctx, "a").Err()).To(Succeed())
		}
		on.Break(0, anyones("release", 0, faultproxy.DelayRequest(300*time.Millisecond)))
		for i := 1; i < 3; i++ {
			on.Break(i, anyones("obtain", 0, faultproxy.DelayRequest(50*time.Millisecond)))
		}
		for range 20 {
			locks := on.Connect()
			ended := make(chan error, 1)
			go func() {
				_, err := locks.Obtain(ctx, "b", time.Minute, nil)
				ended <- err
			}()
			time.Sleep(10 * time.Millisecond)
			Expect(locks.Close()).To(Succeed())
			Expect(on.LeftKeys(ctx)).To(BeEmpty())
			Eventually(ended).Should(Receive(MatchError(redislock.ErrClosed)))
		}
	})
})

var _ = Describe("Across slots, an obtain that tries again", Label(spec.InMemory), func() {
	DescribeTable("ends with the error of a slot in the middle", func(ctx SpecContext, fail func(ctx context.Context, s *spec.MemoryServer, own *redis.Client)) {
		servers := []*spec.MemoryServer{spec.NewMemoryServer(), spec.NewMemoryServer(), spec.NewMemoryServer()}
		var own []*redis.Client
		for _, s := range servers {
			DeferCleanup(s.End)
			client := s.Connect(0, nil)
			DeferCleanup(client.Close)
			own = append(own, client)
		}
		cluster := spec.NewMemoryCluster(servers, spec.Ours, nil)
		DeferCleanup(cluster.Close)
		locks := redislock.New(cluster)
		DeferCleanup(locks.Close)
		Expect(own[1].Set(ctx, "b", "other", time.Minute).Err()).To(Succeed())
		ended := make(chan error, 1)
		go func() {
			_, err := locks.ObtainMulti(spec.Within(ctx, 30*time.Second), []string{"a", "b", "c"}, time.Minute,
				&redislock.Options{AcrossSlots: true, RetryStrategy: redislock.LinearBackoff(50 * time.Millisecond)})
			ended <- err
		}()
		time.Sleep(300 * time.Millisecond)
		fail(ctx, servers[1], own[1])
		var err error
		Eventually(ended).WithTimeout(8 * time.Second).Should(Receive(&err))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(err).NotTo(MatchError(ContainSubstring(`"c"`)), "which was not asked")
		Eventually(own[0].Exists).WithArguments(ctx, "a").Should(HaveField("Val()", BeZero()))
	},
		Entry("that answers with one", func(ctx context.Context, _ *spec.MemoryServer, own *redis.Client) {
			Expect(own.RPush(ctx, "list", "x").Err()).To(Succeed())
			Expect(own.Rename(ctx, "list", "b").Err()).To(Succeed())
		}),
		Entry("that is dead", func(_ context.Context, s *spec.MemoryServer, _ *redis.Client) { s.Kill() }),
	)
})

var _ = Describe("Of Rings on miniredis,", Label(spec.InMemory, spec.Quorums), func() {
	ring := func() *redis.Ring {
		servers := map[string]*spec.MemoryServer{}
		addrs := map[string]string{}
		for i := range 3 {
			server := spec.NewMemoryServer()
			DeferCleanup(server.End)
			addrs[fmt.Sprint(i)] = fmt.Sprintf("127.0.0.1:%d", i)
			servers[addrs[fmt.Sprint(i)]] = server
		}
		ring := redis.NewRing(&redis.RingOptions{
			Addrs:              addrs,
			HeartbeatFrequency: time.Hour, // a Ring moves the keys of a shard that it believes to be down
			NewClient:          func(opt *redis.Options) *redis.Client { return servers[opt.Addr].Connect(spec.Ours, nil) },
		})
		DeferCleanup(ring.Close)
		return ring
	}

	It("a quorum locks several keys only if they have one hash tag", func(ctx SpecContext) {
		locks := redislock.NewQuorum([]redislock.RedisClient{ring(), ring(), ring()})
		DeferCleanup(locks.Close)
		_, err := locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{FenceKey: "fence"})
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Attach(ctx, []string{"a", "b"}, "token")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "{a}:fence"}, "{a}:1", "{a}:2")
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})
})
