package line_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("A hand-off", func(on *spec.Redis) {
	var locks *redislock.Client
	var patterns *redis.PubSub
	var messages <-chan *redis.Message
	queue := &redislock.Options{Queue: true}

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
		patterns = on.Client.PSubscribe(ctx, spec.Inboxes+"*")
		DeferCleanup(func() { _ = patterns.Close() })
		Expect(patterns.Receive(ctx)).NotTo(BeNil())
		messages = patterns.Channel()
	})
	// ready waits until all in line for a key have said that their subscription is open.
	ready := func(ctx context.Context, key string) { GinkgoHelper(); spec.AwaitSubscriptions(ctx, on.Client, key) }
	// said returns the word in the next message, apart from those about marks.
	said := func() string {
		GinkgoHelper()
		for {
			var message *redis.Message
			Eventually(messages).Should(Receive(&message))
			_, words, _ := strings.Cut(message.Payload, " ")
			if word, _, _ := strings.Cut(words, " "); word != "marked" {
				return word
			}
		}
	}

	It("gives the keys to the first with the release, and nothing else is sent", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		opt := &redislock.Options{Queue: true, Metadata: "host 3 {\"x\": 1}\x00é"}
		first := spec.StartWaiter(ctx, locks, 20*time.Second, opt, "b", "a")
		second := spec.StartWaiter(ctx, locks, 20*time.Second, opt, "a")
		ready(ctx, "a")
		sent := spec.CountCalls(on.Client)
		Expect(held.Release(ctx)).To(Succeed())
		lock := first.Granted()
		Expect(sent.Count()).To(Equal(1))
		Expect(said()).To(Equal("granted"))
		Consistently(messages).WithTimeout(20 * time.Millisecond).ShouldNot(Receive())
		for _, key := range []string{"a", "b"} {
			Expect(on.Client.Get(ctx, key).Val()).To(Equal(lock.Token() + " " + opt.Metadata))
			Expect(on.Client.PTTL(ctx, key).Val()).To(BeNumerically("~", 20*time.Second, time.Second))
		}
		Expect(lock.Metadata()).To(Equal(opt.Metadata))
		Expect(spec.CountWaiters(ctx, locks, "a")).To(Equal(1), "the second")
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(second.Granted().Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("serves several at once who want different keys of the release", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b", "c", "d")
		ab, c := spec.StartWaiter(ctx, locks, time.Minute, queue, "a", "b"), spec.StartWaiter(ctx, locks, time.Minute, queue, "c")
		bd := spec.StartWaiter(ctx, locks, time.Minute, queue, "b", "d") // is behind the first in one line
		ready(ctx, "a")
		ready(ctx, "c")
		ready(ctx, "b")
		Expect(held.Release(ctx)).To(Succeed())
		Expect([]string{said(), said(), said()}).To(ConsistOf("granted", "granted", ""))
		first := ab.Granted()
		Consistently(bd.Done).WithTimeout(30 * time.Millisecond).ShouldNot(BeClosed())
		Expect(c.Granted().Release(ctx)).To(Succeed())
		Expect(first.Release(ctx)).To(Succeed())
		Expect(bd.Granted().Release(ctx)).To(Succeed())
	})

	It("mints from the fence key that it shares with the releaser", func(ctx SpecContext) {
		fenced := &redislock.Options{Queue: true, FenceKey: "fence"}
		held := spec.Obtain(ctx, locks, time.Minute, fenced, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, fenced, "a")
		ready(ctx, "a")
		sent := spec.CountCalls(on.Client)
		Expect(held.Release(ctx)).To(Succeed())
		lock := first.Granted()
		Expect(sent.Count()).To(Equal(1))
		Expect(lock.FenceToken()).To(BeNumerically(">", held.FenceToken()))
		Expect(on.Client.Get(ctx, "fence").Val()).To(Equal(fmt.Sprint(lock.FenceToken())))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	DescribeTable("is none, but a wake-up, for", func(ctx SpecContext, opt redislock.Options, also string) {
		held := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a")
		keys := []string{"a"}
		if also != "" {
			keys = append(keys, also)
		}
		opt.Queue = true
		first := spec.StartWaiter(ctx, locks, time.Minute, &opt, keys...)
		ready(ctx, "a")
		sent := spec.CountCalls(on.Client)
		Expect(held.Release(ctx)).To(Succeed())
		lock := first.Granted()
		Expect(sent.Count()).To(Equal(2))
		Expect(said()).To(BeEmpty())
		Expect(lock.Metadata()).To(Equal(opt.Metadata))
		Expect(lock.Release(ctx)).To(Succeed())
	},
		Entry("a token of the caller's own", redislock.Options{Token: "mine"}, ""),
		Entry("more than 1 KiB of metadata", *spec.OnlyWoken, ""),
		Entry("a fence key of another name", redislock.Options{FenceKey: "fence2"}, ""),
		Entry("who wants a key that the release does not free", redislock.Options{}, "b"),
	)

	It("that nobody hears of is found at the next try, and promises no more than Redis has left", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, 5*time.Second, queue, "a")
		ready(ctx, "a")
		line, err := locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(on.Client.Del(ctx, "a", spec.LineKey("a")).Err()).To(Succeed())
		Expect(on.Client.Set(ctx, "a", line[0].Token, 5*time.Second).Err()).To(Succeed())
		began := time.Now()
		lock := first.Granted()
		Expect(first.At).To(BeTemporally("<", began.Add(1200*time.Millisecond)))
		left := on.Client.PTTL(ctx, "a").Val()
		Expect(time.Until(lock.Until())).To(BeNumerically("<=", left))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(held.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("lasts no longer than Redis keeps the keys, whenever it comes", func(ctx SpecContext) {
		for i := range 30 {
			held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			first := spec.StartWaiter(ctx, locks, 2*time.Second, queue, "a")
			ready(ctx, "a")
			time.Sleep(time.Duration(i*7) * time.Millisecond)
			Expect(held.Release(ctx)).To(Succeed())
			lock := first.Granted()
			left := on.Client.PTTL(ctx, "a").Val()
			until := time.Until(lock.Until())
			Expect(until).To(BeNumerically("<=", left))
			Expect(until).To(BeNumerically(">", left-100*time.Millisecond), "and hardly less")
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})

	It("leaves nothing behind when ctx ends at that very moment", func(ctx SpecContext) {
		Expect(patterns.Close()).To(Succeed()) // nobody reads so many messages
		handed := 0
		for i := range 100 {
			held := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
			first := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
			if i == 0 {
				ready(ctx, "a")
			}
			go func() {
				time.Sleep(time.Duration(i%10) * 20 * time.Microsecond)
				first.Cancel()
			}()
			Expect(held.Release(ctx)).To(Succeed())
			Eventually(first.Done).Should(BeClosed())
			if first.Lock != nil {
				handed++
				Expect(first.Lock.Release(ctx)).To(Succeed())
			}
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(2*time.Second).WithPolling(time.Millisecond).
				Should(BeEmpty(), "round %d", i)
		}
		GinkgoWriter.Println(handed, "of 100 got the lock")
	})

	It("is made once by a release that is sent twice", func(ctx SpecContext) {
		proxy := on.NewProxy()
		faulty := on.ConnectThrough(proxy)
		held := spec.Obtain(ctx, faulty, time.Minute, nil, "a")
		first, second := spec.StartWaiter(ctx, locks, time.Minute, queue, "a"), spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		ready(ctx, "a")
		lost := proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Times: 1, Action: faultproxy.CutAfterReplyBytes(0)})
		Expect(held.Release(ctx)).To(Succeed(), "it knows that it freed the key itself")
		Expect(lost.Count()).To(Equal(1))
		lock := first.Granted()
		Consistently(second.Done).WithTimeout(50 * time.Millisecond).ShouldNot(BeClosed())
		Expect(on.Client.Get(ctx, "a").Val()).To(Equal(lock.Token()))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(second.Granted().Release(ctx)).To(Succeed())
	})

	It("goes to the next when the connection of the first is gone, which is first again when it is heard of", func(ctx SpecContext) {
		proxy := on.NewProxy()
		faulty := on.ConnectThrough(proxy)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first, second := spec.StartWaiter(ctx, faulty, time.Minute, queue, "a"), spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		third := spec.StartWaiter(ctx, locks, time.Minute, queue, "a")
		ready(ctx, "a")
		Expect(patterns.Close()).To(Succeed()) // who listens to all inboxes hears what is for the first, too
		proxy.RefuseConnections(true)
		proxy.CutAll()
		Eventually(func() int { return len(on.Client.PubSubChannels(ctx, spec.Inboxes+"*").Val()) }).Should(Equal(1))
		Expect(held.Release(ctx)).To(Succeed())
		lock := second.Granted()
		proxy.RefuseConnections(false)
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "a") }).WithTimeout(5 * time.Second).Should(Equal(2))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		Expect(third.Granted().Release(ctx)).To(Succeed())
	})

	It("does not go to a try that enters the line again after the lock was released", func(ctx SpecContext) {
		proxy := on.NewProxy()
		faulty := on.ConnectThrough(proxy)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, faulty, time.Minute, queue, "a")
		ready(ctx, "a")
		stuck := proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 1, Action: faultproxy.DelayRequest(2500 * time.Millisecond)})
		spec.Wake(ctx, on.Client, "a", 0)
		Eventually(stuck.Count).WithTimeout(2 * time.Second).WithPolling(time.Millisecond).Should(Equal(1))
		sent := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
		proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Action: faultproxy.DelayRequest(200 * time.Millisecond)})
		held = spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "a") }).WithTimeout(4*time.Second).WithPolling(5*time.Millisecond).
			Should(Equal(1), "the stuck try has taken a position")
		Expect(time.Since(sent)).To(BeNumerically(">", 2*time.Second))
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "a") }).WithTimeout(1500*time.Millisecond).
			Should(BeZero(), "and the release has looked once more")
		Expect(held.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})
})
