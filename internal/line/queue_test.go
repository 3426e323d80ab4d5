package line_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// promptly is less than a waiter would wait without being woken.
const promptly = 500 * time.Millisecond

var _ = spec.DescribeOnRedis("Queue", func(on *spec.Redis) {
	var locks *redislock.Client
	queue := &redislock.Options{Queue: true}

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})
	AfterEach(func(ctx SpecContext) {
		Expect(locks.Close()).To(Succeed())
		if !CurrentSpecReport().Failed() {
			for _, key := range on.Keys(ctx) {
				Expect(key).NotTo(HaveSuffix(":redislock:line"), "nobody waits any more")
			}
		}
	})

	It("grants in the order of arrival wherever key sets overlap, across Clients", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b", "c{x}", "d")
		sets := [][]string{{"a"}, {"b", "a"}, {"c{x}"}, {"a", "c{x}"}, {"d"}, {"b"}, {"d", "a", "b"}, {"c{x}", "d"}, {"a"}}
		var queued []*spec.Waiter
		for _, keys := range sets {
			other := redislock.New(on.Client)
			DeferCleanup(other.Close)
			queued = append(queued, spec.StartWaiter(ctx, other, time.Minute, queue, keys...))
		}
		Expect(held.Release(ctx)).To(Succeed())
		for i, w := range queued { // each can be had only when those before it with a key in common have released
			lock := w.Granted()
			for j, later := range queued[i+1:] {
				if slices.ContainsFunc(sets[i], func(key string) bool { return slices.Contains(sets[i+1+j], key) }) {
					Expect(later.Done).NotTo(BeClosed(), "%v before %v", sets[i+1+j], sets[i])
				}
			}
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})

	It("lets no newcomer overtake the waiters, although the key is free", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "b")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a", "b") // "a" is free all the time
		_, err := locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		second := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		Consistently(second.Done).WithTimeout(50 * time.Millisecond).ShouldNot(BeClosed())
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(second.Granted().Release(ctx)).To(Succeed())
	})

	It("does not make disjoint sets wait for each other", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		Expect(spec.Obtain(ctx, locks, time.Minute, queue, "b", "c").Release(ctx)).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
	})

	It("lets a holder of one key acquire another one before those who wait for both", func(ctx SpecContext) {
		mine := &redislock.Options{Token: "mine", Queue: true}
		held := spec.Obtain(ctx, locks, time.Minute, mine, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a", "b")
		both := spec.Obtain(ctx, locks, time.Minute, mine, "a", "b")
		Expect(held.Release(ctx)).To(Succeed())
		Consistently(first.Done).WithTimeout(50 * time.Millisecond).ShouldNot(BeClosed())
		Expect(spec.LostKeys(both.Release(ctx))).To(Equal([]string{"a"}))
		Expect(first.Granted().Release(ctx)).To(Succeed())
	})

	It("hands the keys to one waiter with one message, and nothing else is sent", func(ctx SpecContext) {
		messages := on.Client.PSubscribe(ctx, "redislock:inbox:*")
		DeferCleanup(messages.Close)
		Expect(messages.Receive(ctx)).NotTo(BeNil())
		received := messages.Channel()
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		var queued []*spec.Waiter
		for range 5 {
			queued = append(queued, spec.StartWaiter(ctx, locks, time.Minute, queue, "a", "b"))
		}
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		Eventually(received).Should(Receive(HaveField("Payload", HavePrefix("1 marked "))))
		sent := spec.CountCalls(on.Client)
		Expect(held.Release(ctx)).To(Succeed())
		lock := queued[0].Granted()
		Expect(sent.Count()).To(Equal(1), "the release, which has handed the keys over")
		Eventually(received).Should(Receive())
		Consistently(received).WithTimeout(20 * time.Millisecond).ShouldNot(Receive())
		Expect(lock.Release(ctx)).To(Succeed())
		for _, w := range queued[1:] {
			Expect(w.Granted().Release(ctx)).To(Succeed())
		}
	})

	It("wakes those who are first in different lines, also after a release in part", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b", "c")
		first, second := spec.StartWaiter(ctx, locks, time.Minute, queue, "a"), spec.StartWaiter(ctx, locks, time.Minute, queue, "b")
		Expect(on.Client.Del(ctx, "c").Err()).To(Succeed())
		began := time.Now()
		Expect(spec.LostKeys(held.Release(ctx))).To(Equal([]string{"c"}))
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(second.Granted().Release(ctx)).To(Succeed())
		Expect(second.At).To(BeTemporally("<", began.Add(promptly)))
	})

	It("gives up the position as soon as ctx ends, and wakes the next waiter", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "b")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a", "b")
		second := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		began := time.Now()
		first.Cancel()
		Expect(first.Over()).To(And(MatchError(redislock.ErrNotObtained), MatchError(context.Canceled)))
		Expect(second.Granted().Release(ctx)).To(Succeed())
		Expect(second.At).To(BeTemporally("<", began.Add(promptly)))
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("costs the ttl of a crashed holder and no more", func(ctx SpecContext) {
		began := time.Now()
		spec.Obtain(ctx, locks, 300*time.Millisecond, nil, "a") // never released
		first := spec.StartWaiter(ctx, locks, 400*time.Millisecond, queue, "a")
		second := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		first.Granted() // nor this one, whose ttl the second has not seen yet
		lock := second.Granted()
		GinkgoWriter.Println(first.At.Sub(began), second.At.Sub(first.At))
		late := spec.Bound(on.Kind, 50*time.Millisecond, 200*time.Millisecond)
		Expect(first.At).To(BeTemporally("~", began.Add(300*time.Millisecond), late))
		Expect(second.At).To(BeTemporally("~", first.At.Add(400*time.Millisecond), late))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("skips a waiter that has not been heard of, and nothing is left of it", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "b")
		line := "a{a}:redislock:line"
		dead := func(ago time.Duration) {
			on.Client.ZAdd(ctx, line, redis.Z{Score: 1, Member: "gone/1 1 60000 0 token"},
				redis.Z{Score: spec.Mark(time.Now().Add(3*time.Second-ago), 3, false), Member: "~gone"})
		}
		dead(2500 * time.Millisecond)
		began := time.Now()
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(first.At).To(BeTemporally("~", began.Add(500*time.Millisecond), 100*time.Millisecond))
		Expect(on.Keys(ctx)).To(ConsistOf("b"))

		dead(-2 * time.Second) // heard of in the future: the clock of the server was set back
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(ConsistOf("b"))
		on.Client.ZAdd(ctx, line, redis.Z{Score: 1, Member: "gone/1 1 60000 0 token"}) // without a mark
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		on.Client.ZAdd(ctx, line, redis.Z{Score: 1, Member: "what is this?"})
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("is limited by ctx only, and not by the ttl", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, 20*time.Millisecond, queue, "a")
		Consistently(first.Done).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		Expect(held.Release(ctx)).To(Succeed())
		first.Granted()
	})

	It("does not subscribe when the lock is free", func(ctx SpecContext) {
		sent := spec.CountCalls(on.Client)
		Expect(spec.Obtain(ctx, locks, time.Minute, queue, "a", "b").Release(ctx)).To(Succeed())
		Expect(sent.Count()).To(Equal(2))
		Expect(on.Client.PubSubChannels(ctx, "*").Val()).To(BeEmpty())
	})

	It("has one subscription for all waiters of a Client, and none after Close", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		for range 10 {
			spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
			spec.StartWaiter(ctx, locks, time.Minute, queue, "b")
		}
		Expect(on.Client.PubSubChannels(ctx, "*").Val()).To(HaveLen(1))
		Expect(locks.Close()).To(Succeed())
		Expect(on.Keys(ctx)).To(ConsistOf("a", "b"), "Close has waited until all had left")
		Eventually(func() []string { return on.Client.PubSubChannels(ctx, "*").Val() }).Should(BeEmpty())
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("ends with ErrClosed when the Client is closed, and lets the next of another Client in", func(ctx SpecContext) {
		other := redislock.New(on.Client)
		DeferCleanup(other.Close)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "b")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a", "b")
		second := spec.StartWaiter(ctx, other, time.Minute, queue, "a")
		Expect(locks.Close()).To(Succeed())
		Expect(first.Over()).To(Equal(redislock.ErrClosed))
		Expect(second.Granted().Release(ctx)).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("ends with ErrClosed when the Client is closed, although a message asks for a try at the same time", func(ctx SpecContext) {
		held := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a")
		var own *redislock.Client
		own = redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{Refused: func(ctx context.Context, _ redislock.Refused) {
			Eventually(func() []string { return spec.Subscriptions(ctx, on.Client) }).WithTimeout(5*time.Second).Should(HaveLen(1), "which asks for a try")
			Expect(own.Close()).To(Succeed())
			Expect(held.Release(ctx)).To(Succeed())
		}}))
		_, err := own.Obtain(ctx, "a", time.Minute, queue)
		Expect(err).To(Equal(redislock.ErrClosed))
		Eventually(on.Keys).WithArguments(ctx).Should(BeEmpty())
	})

	It("works through the functions of the package, which leave no subscription behind", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		done := make(chan error)
		go func() {
			done <- redislock.Do(ctx, on.Client, []string{"a", "b"}, time.Minute, queue, func(ctx context.Context) error {
				return ctx.Err()
			})
		}()
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "b") }).Should(Equal(1))
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(done).Should(Receive(BeNil()))
		Eventually(func() []string { return on.Client.PubSubChannels(ctx, "*").Val() }).Should(BeEmpty())
	})

	It("waits for an attached lock, and for one that Do keeps", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		attached, err := locks.Attach(ctx, []string{"a"}, held.Token())
		Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		Expect(attached.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(first.At).To(BeTemporally("<", began.Add(promptly)))

		var second *spec.Waiter
		Expect(locks.Do(ctx, []string{"a", "b"}, time.Minute, queue, func(ctx context.Context) error {
			second = spec.StartWaiter(context.WithoutCancel(ctx), locks, time.Minute, queue, "b")
			return nil
		})).To(Succeed())
		Expect(second.Granted().Release(ctx)).To(Succeed())
	})

	It("mints fencing tokens in the order of the line", func(ctx SpecContext) {
		fenced := &redislock.Options{Queue: true, FenceKey: "fence"}
		held := spec.Obtain(ctx, locks, time.Minute, fenced, "a")
		first, second := spec.StartWaiter(ctx, locks, time.Minute, fenced, "a"), spec.StartWaiter(ctx, locks, time.Minute, fenced, "a")
		Expect(held.Release(ctx)).To(Succeed())
		lock := first.Granted()
		Expect(lock.FenceToken()).To(BeNumerically(">", held.FenceToken()))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(second.Granted().FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(second.Lock.Release(ctx)).To(Succeed())
	})

	It("shows in Inspect who waits, and since when", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		began := time.Now()
		spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		spec.StartWaiter(ctx, locks, time.Minute, queue, "b", "a")
		statuses, err := locks.Inspect(ctx, "b", "{}", "a", "free")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses).To(HaveLen(4))
		Expect(statuses[0].Waiters).To(Equal(1))
		Expect(statuses[2].Waiters).To(Equal(2))
		Expect(statuses[2].WaitingSince).To(BeTemporally("~", began, promptly))
		Expect(statuses[0].WaitingSince).To(BeTemporally(">", statuses[2].WaitingSince))
		Expect(statuses[2].Token).To(Equal(held.Token()))
		Expect(statuses[1]).To(Equal(redislock.Status{Key: "{}"}))
		Expect(statuses[3]).To(Equal(redislock.Status{Key: "free"}))
		Expect(locks.Close()).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("shows in Line who waits, in order", func(ctx SpecContext) {
		Expect(locks.Line(ctx, "a")).To(BeEmpty())
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		began := time.Now()
		for i, keys := range [][]string{{"a"}, {"b"}, {"b", "a"}} {
			spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true, Metadata: fmt.Sprint("number ", i), FenceKey: "f 1"}, keys...)
		}
		spec.StartWaiter(ctx, locks, time.Minute, spec.OnlyWoken, "a")
		spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true, Token: "mine"}, "a")
		line, err := locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(line).To(HaveLen(4))
		Expect(line[0].Metadata).To(Equal("number 0"))
		Expect(line[1].Metadata).To(Equal("number 2"))
		Expect(line[2].Metadata).To(Equal(strings.Repeat("m", 1024)), "cut")
		Expect(line[3]).To(And(HaveField("Token", "mine"), HaveField("Metadata", "")))
		for i, w := range line {
			Expect(len(w.Token)).To(BeElementOf(22, 4))
			Expect(w.Since).To(BeTemporally("~", began, promptly))
			Expect(i == 0 || w.Since.After(line[i-1].Since)).To(BeTrue())
			Expect(w.Late).To(BeFalse())
		}
		stale := redis.Z{Score: spec.Mark(time.Now().Add(time.Second/2), 3, true), Member: "~gone"}
		on.Client.ZAdd(ctx, spec.LineKey("a"), redis.Z{Score: 1, Member: "gone/1 1 60000 0 token m"}, stale)
		line, err = locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(line[0]).To(And(HaveField("Token", "token"), HaveField("Late", true)))
		on.Client.ZRem(ctx, spec.LineKey("a"), "~gone")
		Expect(locks.Line(ctx, "a")).To(HaveLen(4), "without those who are passed over")

		Expect(locks.Line(ctx, "a}")).To(BeEmpty())
		_, err = locks.Line(ctx, "")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		Expect(on.Client.Del(ctx, spec.LineKey("x")).Err()).To(Succeed())
		on.Client.Set(ctx, spec.LineKey("x"), "x", time.Minute)
		_, err = locks.Line(ctx, "x")
		Expect(err).To(MatchError(ContainSubstring("WRONGTYPE")))
		on.Client.Del(ctx, spec.LineKey("x"))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = locks.Line(ended, "a")
		Expect(err).To(MatchError(context.Canceled))
		Expect(locks.Close()).To(Succeed())
		_, err = locks.Line(ctx, "a")
		Expect(err).To(MatchError(redislock.ErrClosed))
		Expect(held.Release(ctx)).To(Succeed())
		Expect(on.Client.Del(ctx, spec.LineKey("a")).Err()).To(Succeed())
	})

	DescribeTable("refuses a key that has no room for a line, and sends nothing", func(ctx SpecContext, key string) {
		sent := spec.CountCalls(on.Client)
		_, err := locks.ObtainMulti(ctx, []string{"a", key}, time.Minute, queue)
		Expect(err).To(And(MatchError(redislock.ErrInvalid), MatchError(ContainSubstring("%q", key))))
		Expect(sent.Count()).To(BeZero())
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a", key).Release(ctx)).To(Succeed(), "without Queue it is a key like any other")
	}, func(key string) string { return key },
		Entry(nil, "a{b"), Entry(nil, "a}b"), Entry(nil, "{}a"), Entry(nil, "a{}{b}"), Entry(nil, "}a{"))

	It("is not ended by a RetryStrategy, nor made to poll where messages arrive", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		limited := &redislock.Options{
			Queue: true, RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(10*time.Millisecond), 2),
		}
		first := spec.StartWaiter(ctx, locks, time.Minute, limited, "a")
		sent := spec.CountCalls(on.Client)
		Consistently(first.Done).WithTimeout(300 * time.Millisecond).ShouldNot(BeClosed())
		Expect(sent.Count()).To(BeNumerically("<", 5), "and not 30")
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
	})

	It("polls as often as the RetryStrategy says if it cannot subscribe", func(ctx SpecContext) {
		plain := redislock.New(struct{ redis.Scripter }{on.Client})
		DeferCleanup(plain.Close)
		held := spec.Obtain(ctx, plain, time.Minute, nil, "a")
		often := &redislock.Options{Queue: true, RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}
		first := spec.StartWaiter(ctx, plain, time.Minute, often, "a")
		second := spec.StartWaiter(ctx, plain, time.Minute, queue, "a")
		began := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(first.At).To(BeTemporally("<", began.Add(300*time.Millisecond)))
		Expect(second.Granted().Release(ctx)).To(Succeed())
		Expect(second.At).To(BeTemporally("<", began.Add(1500*time.Millisecond)))
		Expect(on.Client.PubSubChannels(ctx, "*").Val()).To(BeEmpty())
	})

	It("treats an error before the first refusal as final", func(ctx SpecContext) {
		Expect(on.Client.SAdd(ctx, "s", "x").Err()).To(Succeed())
		_, err := locks.ObtainMulti(ctx, []string{"a", "s"}, time.Minute, queue)
		Expect(err).To(MatchError(ContainSubstring("WRONGTYPE")))
		nowhere := spec.Connect(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		_, err = redislock.Obtain(ctx, nowhere, "a", time.Minute, queue)
		Expect(err).To(MatchError(ContainSubstring("connection refused")))
	})

	It("leaves the line on an error that will not pass", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a", "b")
		second := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		Expect(on.Client.Del(ctx, "b").Err()).To(Succeed())
		Expect(on.Client.SAdd(ctx, "b", "x").Err()).To(Succeed())
		spec.Wake(ctx, on.Client, "a", 0)
		Expect(first.Over()).To(MatchError(ContainSubstring("WRONGTYPE")), "found by its next try")
		Expect(spec.LostKeys(held.Release(ctx))).To(Equal([]string{"b"}))
		Expect(second.Granted().Release(ctx)).To(Succeed())
	})
})

var _ = spec.DescribeOn(spec.OnServer, "Queue under an ACL", func(on *spec.Redis) {
	as := func(ctx context.Context, server *redistest.Server, rules ...any) *redislock.Client {
		admin := spec.Connect(&redis.Options{Addr: server.Addr()})
		Expect(admin.Do(ctx, append([]any{"ACL", "SETUSER", "limited", "on", "nopass", "+@all"}, rules...)...).Err()).To(Succeed())
		locks := redislock.New(spec.Connect(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "x"}))
		DeferCleanup(locks.Close)
		return locks
	}

	It("is covered by a pattern that begins with the key, and says what is missing otherwise", func(ctx SpecContext) {
		server := spec.StartServer()
		Expect(spec.Obtain(ctx, as(ctx, server, "resetkeys", "~a*"), time.Minute, nil, "a").Release(ctx)).To(Succeed())
		_, err := as(ctx, server, "resetkeys", "~a").Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(And(ContainSubstring("NOPERM"), ContainSubstring(`"a{a}:redislock:line"`))))
	})
})

var _ = spec.DescribeOnRedis("Queue through a faulty network", func(on *spec.Redis) {
	var proxy *faultproxy.Proxy
	var locks, healthy *redislock.Client
	queue := &redislock.Options{Queue: true}

	BeforeEach(func() {
		proxy = on.NewProxy()
		locks = redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 5 * time.Second, DB: on.Client.Options().DB}))
		DeferCleanup(locks.Close)
		healthy = redislock.New(on.Client)
		DeferCleanup(healthy.Close)
	})
	broken := func(match func([]string) bool, times int, action faultproxy.Action) *faultproxy.Fault {
		return proxy.Add(faultproxy.Rule{Match: match, Times: times, Action: action})
	}

	It("is granted within a second even if its message is lost", func(ctx SpecContext) {
		held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		proxy.CutAll() // the message comes while the subscription is made anew
		began := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(first.At).To(BeTemporally("<", began.Add(1200*time.Millisecond)))
	})

	answered := func(ctx context.Context, lock *redislock.Lock) { Expect(lock.Release(ctx)).To(Succeed()) }
	abandoned := func(ctx context.Context, lock *redislock.Lock) {
		broken(spec.Running("release"), 1, faultproxy.DelayReply(300*time.Millisecond))
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
	}
	nobody := func(context.Context) *redislock.Lock { return nil }
	DescribeTable("frees what an abandoned try does long after the release, when",
		func(ctx SpecContext, release func(context.Context, *redislock.Lock), again func(context.Context) *redislock.Lock) {
			held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
			first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
			spec.AwaitSubscriptions(ctx, on.Client, "a")
			stuck := broken(spec.Running("obtain"), 1, faultproxy.DelayRequest(4500*time.Millisecond))
			spec.Wake(ctx, on.Client, "a", 0)
			Eventually(stuck.Count).WithTimeout(2 * time.Second).WithPolling(time.Millisecond).Should(Equal(1))
			sent := time.Now()
			time.Sleep(1200 * time.Millisecond) // until it is abandoned
			Expect(held.Release(ctx)).To(Succeed())
			release(ctx, first.Granted())
			other := again(ctx)
			time.Sleep(time.Until(sent.Add(4700 * time.Millisecond)))
			Eventually(func() int { return spec.CountWaiters(ctx, healthy, "a") }).WithTimeout(1500 * time.Millisecond).Should(BeZero())
			if other != nil {
				Expect(other.Release(ctx)).To(Succeed())
			}
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(1500 * time.Millisecond).Should(BeEmpty())
		},
		Entry("it acquires the keys", answered, nobody),
		on.InFakeTime(
			Entry("it acquires the keys, and the release goes on in the background", abandoned, nobody),
			Entry("it enters the lines", answered,
				func(ctx context.Context) *redislock.Lock { return spec.Obtain(ctx, healthy, time.Minute, nil, "a") }),
		),
	)

	It("renews a broken subscription at once, and is woken through it", func(ctx SpecContext) {
		held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		before := proxy.Executed(faultproxy.Command("subscribe"))
		proxy.CutAll()
		Eventually(func() int { return proxy.Executed(faultproxy.Command("subscribe")) }).
			WithTimeout(200 * time.Millisecond).WithPolling(time.Millisecond).Should(Equal(before + 1))
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
	})

	It("polls while a subscription is not answered", func(ctx SpecContext) {
		held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		broken(faultproxy.Command("subscribe"), 0, faultproxy.BlackHole())
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		began := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(first.At).To(BeTemporally("<", began.Add(1200*time.Millisecond)))
	})

	It("polls if the channel is forbidden", func(ctx SpecContext) {
		held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		refused := broken(faultproxy.Command("subscribe"), 0, faultproxy.RefuseReply("NOPERM no channel for you"))
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		began := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(first.At).To(BeTemporally("<", began.Add(spec.Bound(on.Kind, 1200*time.Millisecond, 1800*time.Millisecond))))
		Expect(refused.Count()).To(Equal(1), "it does not ask again at once")
	})

	It("does not wait for a lost reply longer than until the next try", func(ctx SpecContext) {
		held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, spec.OnlyWoken, "a")
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		lost := broken(spec.Running("obtain"), 1, faultproxy.SwallowReply())
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(lost.Hit()).Should(BeClosed())
		began := time.Now()
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(first.At).To(BeTemporally("<", began.Add(2500*time.Millisecond)))
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("tries each second through errors that may pass, and returns the last one when ctx ends", func(ctx SpecContext) {
		held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, spec.OnlyWoken, "a")
		errs := broken(spec.Running("obtain"), 2, faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"))
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		spec.Wake(ctx, on.Client, "a", 0)
		Eventually(errs.Count).WithTimeout(5 * time.Second).Should(Equal(2))
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())

		held = spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		second := spec.StartWaiter(ctx, locks, time.Minute, spec.OnlyWoken, "a")
		Consistently(second.Done).WithTimeout(100*time.Millisecond).ShouldNot(BeClosed(), "its first try has been answered")
		proxy.RefuseConnections(true)
		proxy.CutAll()
		Consistently(second.Done).WithTimeout(2 * time.Second).ShouldNot(BeClosed())
		second.Cancel()
		err := second.Over()
		Expect(err).To(And(MatchError(redislock.ErrNotObtained), MatchError(context.Canceled)))
		Expect(err).To(MatchError(ContainSubstring("the last try: redislock: obtain")))
		Expect(strings.Count(err.Error(), "\n")).To(BeZero())
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(9*time.Second).Should(BeEmpty(), "its position lapses")
	})

	// A proxy on a real socket accepts a connection before it closes it.
	connectionRefused := Or(MatchError(syscall.ECONNREFUSED), MatchError(io.EOF), MatchError(syscall.ECONNRESET), MatchError(syscall.EPIPE))

	It("waits from the first try on for a Redis that refuses connections, if ctx has a deadline", func(ctx SpecContext) {
		proxy.RefuseConnections(true)
		_, err := locks.Obtain(context.WithoutCancel(ctx), "a", time.Minute, queue)
		Expect(err).To(connectionRefused)
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))

		granted := make(chan error, 1)
		go func() {
			lock, err := locks.Obtain(spec.Within(ctx, time.Minute), "a", time.Minute, queue)
			if err == nil {
				err = lock.Release(ctx)
			}
			granted <- err
		}()
		Consistently(granted).WithTimeout(2500 * time.Millisecond).ShouldNot(Receive())
		proxy.RefuseConnections(false)
		Eventually(granted).WithTimeout(5 * time.Second).Should(Receive(BeNil()))
	})

	DescribeTable("returns when ctx ends, although no try has been answered,",
		func(ctx SpecContext, away func(), why types.GomegaMatcher) {
			away()
			short := spec.Bound(on.Kind, 20*time.Millisecond, 200*time.Millisecond) // enough for a first try
			for _, limit := range []time.Duration{short, 2500 * time.Millisecond} {
				began := time.Now()
				_, err := locks.Obtain(spec.Within(ctx, limit), "a", time.Minute, queue)
				Expect(time.Since(began)).To(BeNumerically("~", limit, spec.Bound(on.Kind, 10*time.Millisecond, spec.Soon)))
				Expect(err).To(And(MatchError(redislock.ErrNotObtained), MatchError(context.DeadlineExceeded)))
				Expect(err).To(MatchError(ContainSubstring("the last try: redislock: obtain")))
				if limit > time.Second {
					Expect(err).To(why)
				}
			}
			proxy.Close() // what hangs
		},
		Entry("because connections are refused", func() { proxy.RefuseConnections(true) }, connectionRefused),
		Entry("because the connection hangs", func() { broken(nil, 0, faultproxy.BlackHole()) },
			MatchError(ContainSubstring("no answer from Redis"))),
	)

	It("gives back what a try takes whose ctx ends on the way, and its position", func(ctx SpecContext) {
		held := spec.Obtain(ctx, healthy, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, spec.OnlyWoken, "a")
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		second := spec.StartWaiter(ctx, healthy, time.Minute, queue, "a")
		delayed := broken(spec.Running("obtain"), 1, faultproxy.DelayReply(300*time.Millisecond))
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(delayed.Hit()).Should(BeClosed())
		first.Cancel()
		Expect(first.Over()).To(MatchError(context.Canceled))
		Expect(second.Granted().Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})
})

var _ = spec.DescribeOnRedis("Many in line", func(on *spec.Redis) {
	It("are each granted in turn, whatever keys they want, while others leave", func(ctx SpecContext) {
		clients := make([]*redislock.Client, 4)
		for i := range clients {
			clients[i] = redislock.New(spec.Connect(&redis.Options{Addr: on.Addr, DB: on.Client.Options().DB}))
			DeferCleanup(clients[i].Close)
		}
		var mu sync.Mutex // protects what follows
		holders := map[string]int{}
		var problems []string
		granted := 0
		var workers sync.WaitGroup
		for worker := range 40 {
			workers.Go(func() {
				for turn := range 5 {
					keys := []string{"a", "b", "c", "d", "e{x}", "f f"}
					for i := range keys { // a shuffle that a failure can be run again with
						j := (worker*7 + turn*3 + i*i) % len(keys)
						keys[i], keys[j] = keys[j], keys[i]
					}
					keys = keys[:1+(worker+turn)%3]
					ctx, cancel := context.WithCancel(ctx)
					if worker%4 == 3 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(worker)*time.Millisecond)
					}
					lock, err := clients[worker%4].ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Queue: true})
					if err != nil {
						if worker%4 != 3 || !errors.Is(err, context.DeadlineExceeded) {
							mu.Lock()
							problems = append(problems, err.Error())
							mu.Unlock()
						}
						cancel()
						continue
					}
					mu.Lock()
					granted++
					for _, key := range keys {
						if other, taken := holders[key]; taken {
							problems = append(problems, fmt.Sprintf("%q is held by workers %d and %d", key, other, worker))
						}
						holders[key] = worker
					}
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					for _, key := range keys {
						delete(holders, key)
					}
					mu.Unlock()
					if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
						mu.Lock()
						problems = append(problems, err.Error())
						mu.Unlock()
					}
					cancel()
				}
			})
		}
		workers.Wait()
		Expect(problems).To(BeEmpty())
		Expect(granted).To(BeNumerically(">=", 150), "of 200, of which 150 do not give up")
		for _, locks := range clients {
			Expect(locks.Close()).To(Succeed())
		}
		Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty())
	})
})
