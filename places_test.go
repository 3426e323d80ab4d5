package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/redistest"
)

// quorum is a quorum of servers that a spec runs on. Its fields are set anew for every spec.
type quorum struct {
	kind    string
	servers []*oneServer
	locks   *redislock.Client
}

// oneServer is one server of a quorum.
type oneServer struct {
	name   string        // in errors
	client *redis.Client // for the locks
	own    *redis.Client // for the spec

	memory *memoryServer // one of these
	real   *redistest.Server
}

// describeQuorum runs the same specs on quorums of 3 and of 5 servers, on in-memory ones and on real ones.
func describeQuorum(what string, specs func(on *quorum)) bool {
	for _, kind := range []string{inMemory, onServer} {
		for _, n := range []int{3, 5} {
			describeQuorumOf(kind, n, what, specs)
		}
	}
	return true
}

func describeQuorumOf(kind string, n int, what string, specs func(on *quorum)) bool {
	return Describe(fmt.Sprintf("With a %s on %s, %s", quorumOf(n), kind, what), Label(kind, quorums, quorumOf(n)), func() {
		on := &quorum{kind: kind}
		BeforeEach(func(ctx SpecContext) { on.begin(ctx, n) })
		specs(on)
	})
}

func (on *quorum) begin(ctx context.Context, n int) {
	if on.kind == onServer {
		startQuorum()
	}
	checkLeaks()
	on.servers = nil
	for i := range n {
		on.servers = append(on.servers, on.start(ctx, i))
	}
	on.locks = on.connect()
}

func (on *quorum) start(ctx context.Context, i int) *oneServer {
	s := &oneServer{}
	change := func(opt *redis.Options) { opt.ReadTimeout = 2 * time.Second }
	if on.kind == inMemory {
		s.memory = newMemoryServer()
		DeferCleanup(s.memory.end)
		s.client, s.own = s.memory.connect(0, change), s.memory.connect(1, nil)
	} else {
		s.real = quorumServers[i]
		DeferCleanup(s.restore)
		opt := &redis.Options{Addr: s.real.Addr()}
		s.own = redis.NewClient(opt)
		Expect(s.own.FlushAll(ctx).Err()).To(Succeed())
		Expect(s.own.ScriptFlush(ctx).Err()).To(Succeed())
		opt = &redis.Options{Addr: s.real.Addr()}
		change(opt)
		s.client = redis.NewClient(opt)
	}
	DeferCleanup(s.client.Close)
	DeferCleanup(s.own.Close)
	s.name = fmt.Sprintf("server %d (%s)", i+1, s.client.Options().Addr)
	return s
}

// connect returns one more Client on the servers.
func (on *quorum) connect(opts ...redislock.ClientOption) *redislock.Client {
	clients := make([]redislock.RedisClient, len(on.servers))
	for i, s := range on.servers {
		clients[i] = s.client
	}
	locks := redislock.NewQuorum(clients, opts...)
	DeferCleanup(locks.Close)
	return locks
}

// quorumServers are the real servers that the specs of a process share.
var quorumServers []*redistest.Server

// startQuorum starts them, unless they run.
func startQuorum() {
	GinkgoHelper()
	requireServer()
	for len(quorumServers) < 5 {
		s, err := redistest.Start()
		Expect(err).NotTo(HaveOccurred())
		quorumServers = append(quorumServers, s)
	}
}

// hang makes the server keep silent until restore.
func (s *oneServer) hang() {
	GinkgoHelper()
	if s.memory != nil {
		s.memory.hang()
		return
	}
	Expect(s.real.Pause()).To(Succeed())
}

// kill ends the server. What it held is gone.
func (s *oneServer) kill() {
	GinkgoHelper()
	if s.memory != nil {
		s.memory.kill()
		return
	}
	Expect(s.real.Kill()).To(Succeed())
}

// restore makes a server answer that hangs or was killed.
func (s *oneServer) restore() {
	GinkgoHelper()
	if s.memory != nil {
		s.memory.resume()
		s.memory.revive()
		return
	}
	if s.real.Pid() == 0 {
		Expect(s.real.Restart()).To(Succeed())
	}
	Expect(s.real.Resume()).To(Succeed())
}

// restart makes the server forget all that it held.
func (s *oneServer) restart() {
	GinkgoHelper()
	s.kill()
	s.restore()
}

// spare returns how many servers may fail.
func (on *quorum) spare() int { return (len(on.servers) - 1) / 2 }

// values returns what each server holds for a key, "" for nothing.
func (on *quorum) values(ctx context.Context, key string) []string {
	var values []string
	for _, s := range on.servers {
		values = append(values, s.own.Get(ctx, key).Val())
	}
	return values
}

// same returns n times the same value.
func same(n int, value string) []string { return slices.Repeat([]string{value}, n) }

// left returns the names of all keys on all servers, apart from those of fence counters.
func (on *quorum) left(ctx context.Context) []string {
	var all []string
	for _, s := range on.servers {
		for _, key := range s.own.Keys(ctx, "*").Val() {
			if key != "fence" {
				all = append(all, s.name+": "+key)
			}
		}
	}
	return all
}

var _ = describeQuorum("a lock", func(on *quorum) {
	It("is on all servers, and on none after its release", func(ctx SpecContext) {
		sent := time.Now()
		lock, err := on.locks.ObtainMulti(ctx, []string{"a", "b", "a"}, time.Minute, &redislock.Options{Metadata: "me and you"})
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Key()).To(Equal("a"))
		Expect(lock.Keys()).To(Equal([]string{"a", "b"}))
		Expect(lock.Token()).To(HaveLen(22))
		Expect(lock.Metadata()).To(Equal("me and you"))
		Expect(lock.FenceToken()).To(BeZero())
		Expect(lock.Until()).To(BeTemporally("~", sent.Add(59_399*time.Millisecond), 500*time.Millisecond))
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Minute, time.Second))
		for _, key := range lock.Keys() {
			Eventually(on.values).WithArguments(ctx, key).Should(Equal(same(len(on.servers), lock.Token()+" me and you")))
		}
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Eventually(on.left).WithArguments(ctx).Should(BeEmpty())
		Expect(lock.TTL(ctx)).To(BeZero())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Equal(redislock.ErrNotObtained))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("shares no key with another, and a refused obtain leaves nothing behind", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, nil, "b", "c")
		Eventually(on.values).WithArguments(ctx, "c").Should(Equal(same(len(on.servers), lock.Token())))
		for _, keys := range [][]string{{"a", "b"}, {"c"}, {"c", "d", "e"}} {
			_, err := on.connect().ObtainMulti(ctx, keys, time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
		}
		Consistently(on.left).WithArguments(ctx).WithTimeout(50 * time.Millisecond).Should(HaveLen(2 * len(on.servers)))
		obtain(ctx, on.locks, time.Minute, nil, "a", "d")
	})

	It("is obtained after a retry, and by a waiter in line", func(ctx SpecContext) {
		for _, opt := range []*redislock.Options{
			{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}, {Queue: true},
		} {
			lock := obtain(ctx, on.locks, time.Minute, nil, "a", "b")
			done := make(chan error)
			go func() {
				next, err := on.locks.ObtainMulti(ctx, []string{"b", "c"}, time.Minute, opt)
				if err == nil {
					err = next.Release(ctx)
				}
				done <- err
			}()
			Consistently(done).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(done).Should(Receive(BeNil()))
		}
		Eventually(on.left).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("lasts as a Refresh says, which may replace the metadata", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, &redislock.Options{Metadata: "one"}, "a", "b")
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "two"})).To(Succeed())
		Expect(lock.Metadata()).To(Equal("two"))
		Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(time.Hour-36*time.Second), 2*time.Second))
		Eventually(on.values).WithArguments(ctx, "b").Should(Equal(same(len(on.servers), lock.Token()+" two")))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Second, 200*time.Millisecond))
		Expect(lock.Until()).To(BeTemporally("<", time.Now().Add(time.Second)))
		Expect(lock.Refresh(ctx, time.Millisecond, nil)).To(MatchError(redislock.ErrInvalid))
	})

	It("is kept alive while any context of it lives", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, 600*time.Millisecond, nil, "a", "b")
		first, stopFirst := lock.KeepAlive(ctx)
		second, stopSecond := lock.KeepAlive(ctx)
		stopFirst()
		time.Sleep(800 * time.Millisecond)
		Expect(context.Cause(first)).To(Equal(context.Canceled))
		Expect(context.Cause(second)).NotTo(HaveOccurred())
		third, stopThird := lock.KeepAlive(ctx)
		stopSecond()
		time.Sleep(800 * time.Millisecond)
		Expect(context.Cause(third)).NotTo(HaveOccurred())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		stopThird()
		stopThird()
		Eventually(on.left).WithArguments(ctx).Should(BeEmpty())
		fourth, stopFourth := lock.KeepAlive(ctx)
		defer stopFourth()
		Expect(context.Cause(fourth)).To(MatchError(redislock.ErrLapsed))
	})

	It("ends its contexts with a release and with Close, at once", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(context.Cause(kept)).To(MatchError(context.Canceled))

		lock = obtain(ctx, on.locks, time.Minute, nil, "a")
		kept, stop = lock.KeepAlive(ctx)
		defer stop()
		Expect(on.locks.Close()).To(Succeed())
		Expect(context.Cause(kept)).To(Equal(redislock.ErrClosed))
		_, err := on.locks.Obtain(ctx, "b", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = on.locks.Inspect(ctx, "b")
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = on.locks.Line(ctx, "b")
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = on.locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).To(Equal(redislock.ErrClosed))
		time.Sleep(20 * time.Millisecond) // the renewals of all places have ended
		kept, stop = lock.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(Equal(redislock.ErrClosed))
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("guards a function", func(ctx SpecContext) {
		Expect(on.locks.Do(ctx, []string{"a", "b"}, time.Second, nil, func(ctx context.Context) error {
			time.Sleep(1200 * time.Millisecond)
			_, err := on.connect().Obtain(ctx, "b", time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			return ctx.Err()
		})).To(Succeed())
		Eventually(on.left).WithArguments(ctx).Should(BeEmpty())
	})

	It("gives keys that have lost their expiry a ttl again, so that they expire when its holder dies", func(ctx SpecContext) {
		persist := func() {
			for _, s := range on.servers {
				s.own.Persist(ctx, "a")
			}
		}
		endless := func() (n int) {
			for _, s := range on.servers {
				if s.own.PTTL(ctx, "a").Val() == -1 {
					n++
				}
			}
			return n
		}
		lock := obtain(ctx, on.locks, 600*time.Millisecond, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		Eventually(on.values).WithArguments(ctx, "a").Should(Equal(same(len(on.servers), lock.Token())))
		persist()
		found, err := on.connect().Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Eventually(endless).WithTimeout(5 * time.Second).Should(BeZero())
		Expect(found.Until()).To(BeTemporally("<=", time.Now().Add(600*time.Millisecond)))
		Expect(kept.Err()).NotTo(HaveOccurred())
		stop()
		persist()
		found, err = on.connect().Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Until()).To(BeTemporally("<=", time.Now()))
		Expect(found.Refresh(ctx, 600*time.Millisecond, nil)).To(Succeed())
		Expect(found.Until()).To(BeTemporally(">", time.Now()))
		Eventually(on.left).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("can be attached to", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, &redislock.Options{Metadata: "me"}, "a", "b")
		Eventually(on.values).WithArguments(ctx, "b").Should(Equal(same(len(on.servers), lock.Token()+" me")))
		other := on.connect()
		found, err := other.Attach(ctx, []string{"a", "b"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Metadata()).To(Equal("me"))
		Expect(found.Until()).To(BeTemporally("~", lock.Until(), time.Second))
		_, err = other.Attach(ctx, []string{"a", "c"}, lock.Token())
		Expect(lostKeys(err)).To(Equal([]string{"c"}))
		_, err = other.Attach(ctx, []string{"a"}, "another")
		Expect(err).To(Equal(redislock.ErrLockNotHeld))
		kept, stop := found.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrInvalid))
		Expect(found.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Eventually(lock.TTL).WithArguments(ctx).Should(BeNumerically(">", 59*time.Minute)) // the last server may be behind
		Expect(found.Release(ctx)).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("shows who holds and who waits", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, &redislock.Options{Metadata: "me"}, "a")
		Eventually(on.values).WithArguments(ctx, "a").Should(Equal(same(len(on.servers), lock.Token()+" me")))
		waiting, giveUp := context.WithCancel(ctx)
		gone := make(chan error)
		go func() {
			_, err := on.locks.Obtain(waiting, "a", time.Minute, &redislock.Options{Queue: true, Metadata: "next"})
			gone <- err
		}()
		Eventually(func() []redislock.Waiter { line, _ := on.locks.Line(ctx, "a"); return line }).Should(HaveLen(1))
		line, err := on.locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(line[0].Metadata).To(Equal("next"))
		statuses, err := on.locks.Inspect(ctx, "a", "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].WaitingSince).To(BeTemporally("~", time.Now(), 5*time.Second))
		Expect(statuses[0].TTL).To(BeNumerically("~", time.Minute, time.Second))
		statuses[0].WaitingSince, statuses[0].TTL = time.Time{}, 0
		Expect(statuses).To(Equal([]redislock.Status{
			{Key: "a", Token: lock.Token(), Metadata: "me", Waiters: 1}, {Key: "b"},
		}))
		giveUp()
		Eventually(gone).Should(Receive(MatchError(context.Canceled)))
		Eventually(func() []redislock.Waiter { line, _ := on.locks.Line(ctx, "a"); return line }).Should(BeEmpty())
	})

	It("says what is in the way", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, &redislock.Options{Metadata: "me"}, "a")
		_, err := on.locks.ObtainMulti(ctx, []string{"b", "a"}, time.Minute, &redislock.Options{Explain: true})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		var refused *redislock.RefusedError
		Expect(errors.As(err, &refused)).To(BeTrue())
		Expect(refused.Key).To(Equal("a"))
		Expect(refused.Token).To(Equal(lock.Token()))
		Expect(refused.Metadata).To(Equal("me"))
	})

	DescribeTable("is on all servers again, although another had left its key on one, and others try again and again",
		func(ctx SpecContext, opt *redislock.Options) {
			Expect(on.servers[0].own.Set(ctx, "a", "another's", 300*time.Millisecond).Err()).To(Succeed())
			lock := obtain(ctx, on.connect(), 600*time.Millisecond, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			tries, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
			defer cancel()
			_, err := on.locks.Obtain(tries, "a", time.Minute, opt)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Eventually(on.values).WithArguments(ctx, "a").Should(Equal(same(len(on.servers), lock.Token())))
			Expect(context.Cause(kept)).NotTo(HaveOccurred())
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(on.left).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		},
		Entry("with a strategy", &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}),
		Entry("in line", &redislock.Options{Queue: true}),
	)

	It("does not span slots", func(ctx SpecContext) {
		_, err := on.locks.Obtain(ctx, "a", time.Minute, &redislock.Options{AcrossSlots: true})
		Expect(err).To(MatchError(redislock.ErrInvalid))
	})
})

// The torture run found this.
var _ = Describe("TTL on a quorum of 5", Label(inMemory), func() {
	It("is at once that of the last Refresh, also where some servers receive it later", func(ctx SpecContext) {
		on := &quorum{kind: inMemory}
		on.begin(ctx, 5)
		var requests, replies atomic.Int64 // how long they take: requests to the last two servers, replies of the others
		for i, s := range on.servers {
			s.memory.fate = func(w *wire, reply bool, data []byte) fate {
				switch {
				case w.owner != 0:
				case reply && i < 3 && data[0] == ':': // what answers a new connection is no number
					return fate{delay: time.Duration(replies.Load())}
				case !reply && i >= 3:
					return fate{delay: time.Duration(requests.Load())}
				}
				return fate{}
			}
		}
		for _, slow := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} { // before and after they do
			lock := obtain(ctx, on.locks, 10*time.Second, nil, "a")
			Eventually(on.values).WithArguments(ctx, "a").Should(Equal(same(5, lock.Token())))
			requests.Store(int64(50 * time.Millisecond))
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			requests.Store(0)
			replies.Store(int64(slow))
			left, err := lock.TTL(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(left).To(BeNumerically(">", 59*time.Second))
			replies.Store(0)
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})
})
