package transport_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

// moving is a name that leads to a server, and can be made to lead to another one.
type moving struct {
	mu         sync.Mutex // protects the fields below
	addr       string
	subscribes string // where connections go that subscribe; "" for addr
	conns      []*movingConn

	subscribed atomic.Int32 // how many connections have subscribed
}

// movingConn is a connection to the server that the name led to. It stays there.
type movingConn struct {
	net.Conn
	name *moving

	mu         sync.Mutex // protects the fields below
	subscribes bool
}

func (m *moving) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn, err := spec.Dial(ctx, network, m.addr)
	if err != nil {
		return nil, err
	}
	c := &movingConn{Conn: conn, name: m}
	m.conns = append(m.conns, c)
	return c, nil
}

// Write notes what the connection is used for. If the name has another server for those that subscribe, it goes there.
func (c *movingConn) Write(data []byte) (int, error) {
	conn := c.conn()
	if bytes.Contains(data, []byte("\r\nsubscribe\r\n")) {
		c.name.subscribed.Add(1)
		c.name.mu.Lock()
		addr := c.name.subscribes
		c.name.mu.Unlock()
		if addr != "" {
			other, err := spec.Dial(context.Background(), "tcp", addr)
			if err != nil {
				return 0, err
			}
			_ = conn.Close()
			conn = other
		}
		c.mu.Lock()
		c.subscribes, c.Conn = true, conn
		c.mu.Unlock()
	}
	return conn.Write(data)
}

func (c *movingConn) conn() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn
}

func (c *movingConn) Read(data []byte) (int, error)     { return c.conn().Read(data) }
func (c *movingConn) SetReadDeadline(t time.Time) error { return c.conn().SetReadDeadline(t) }
func (c *movingConn) Close() error                      { return c.conn().Close() }

// move makes the name lead elsewhere. The connections of the pool end, and the subscriptions stay where they are.
func (m *moving) move(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addr = addr
	for _, c := range m.conns {
		c.mu.Lock()
		if !c.subscribes {
			_ = c.Conn.Close()
		}
		c.mu.Unlock()
	}
}

var _ = spec.DescribeOnRedis("A server whose name leads to another one", func(on *spec.Redis) {
	var name *moving
	var client, second *redis.Client
	var locks *redislock.Client
	queue := &redislock.Options{Queue: true}

	BeforeEach(func() {
		addr := ""
		if on.Kind == spec.InMemory {
			_, addr = spec.StartMemory()
		} else {
			addr = spec.StartServer().Addr()
		}
		second = spec.Connect(&redis.Options{Addr: addr})
		name = &moving{addr: on.Addr}
		client = spec.Connect(&redis.Options{Addr: "moving:6379", Dialer: name.dial, Protocol: 2, DisableIdentity: true, MaxRetries: 10})
		locks = redislock.New(client)
		DeferCleanup(locks.Close)
	})
	// contend lets so many contend for a lock until ctx ends, and returns how often it was granted by now.
	contend := func(ctx context.Context, goroutines int, opt *redislock.Options) *atomic.Int64 {
		granted := &atomic.Int64{}
		ctx, cancel := context.WithCancel(ctx)
		var wait sync.WaitGroup
		for range goroutines {
			wait.Go(func() {
				for ctx.Err() == nil {
					lock, err := locks.Obtain(ctx, "a", time.Minute, opt)
					if err != nil {
						continue // the pool's connections are cut
					}
					granted.Add(1)
					time.Sleep(spec.Bound(on.Kind, 5*time.Millisecond, time.Millisecond)) // a fake second is full of them
					_ = lock.Release(context.WithoutCancel(ctx))
				}
			})
		}
		DeferCleanup(func() {
			cancel()
			wait.Wait()
		})
		return granted
	}
	// rate returns how many locks are granted in a second.
	rate := func(granted *atomic.Int64) int64 {
		before := granted.Load()
		time.Sleep(time.Second)
		return granted.Load() - before
	}
	const quick = 50 // locks a second; without messages there are a few

	DescribeTable("takes the subscription along, and messages arrive again", func(ctx SpecContext, contenders int, opt *redislock.Options) {
		granted := contend(ctx, contenders, opt)
		Eventually(func() int64 { return rate(granted) }).WithTimeout(5 * time.Second).Should(BeNumerically(">", quick))
		moved := time.Now()
		name.move(second.Options().Addr)
		Eventually(func() []string { return spec.Subscriptions(ctx, second) }).WithTimeout(10 * time.Second).WithPolling(10 * time.Millisecond).
			Should(HaveLen(1))
		GinkgoWriter.Println("subscribed again after", time.Since(moved).Round(10*time.Millisecond))
		Eventually(func() int64 { return rate(granted) }).WithTimeout(5 * time.Second).Should(BeNumerically(">", quick))
		Expect(name.subscribed.Load()).To(Equal(int32(2)), "once at each server")
	},
		Entry("to 8 contenders who are handed the lock", 8, queue),
		on.InFakeTime(
			Entry("to 2 contenders who are handed the lock", 2, queue),
			Entry("to 2 contenders who are woken", 2, spec.OnlyWoken),
			Entry("to 8 contenders who are woken", 8, spec.OnlyWoken),
		),
	)

	It("is found out also by waiters who are alone in line, and so lose no position", func(ctx SpecContext) {
		name.subscribes = second.Options().Addr
		granted := contend(ctx, 2, queue)
		time.Sleep(500 * time.Millisecond)
		Expect(granted.Load()).To(BeNumerically("<", quick/2))
		name.mu.Lock()
		name.subscribes = ""
		name.mu.Unlock()
		Eventually(func() int64 { return rate(granted) }).WithTimeout(10 * time.Second).Should(BeNumerically(">", quick))
		Expect(name.subscribed.Load()).To(Equal(int32(3)), "also once at once, which did not help")
	})

	if on.Kind == spec.InMemory { // it waits long
		It("costs little where messages never come from the server that runs the scripts", func(ctx SpecContext) {
			name.subscribes = second.Options().Addr
			granted := contend(ctx, 8, queue)
			const d = 5 * time.Minute
			time.Sleep(d)
			Expect(granted.Load()).To(BeNumerically(">", d/time.Second), "the waiters try by themselves")
			GinkgoWriter.Println(name.subscribed.Load(), "subscriptions in", d)
			Expect(name.subscribed.Load()).To(BeNumerically(">", 2))
			Expect(name.subscribed.Load()).To(BeNumerically("<=", 12))
		})
	}

	It("is not suspected where locks end with their ttl, or are deleted, while messages arrive", func(ctx SpecContext) {
		for i := range 6 {
			_, err := locks.Obtain(ctx, "a", 1500*time.Millisecond, nil)
			Expect(err).NotTo(HaveOccurred())
			w := spec.StartWaiter(ctx, locks, 1500*time.Millisecond, queue, "a")
			spec.AwaitSubscriptions(ctx, client, "a")
			if i%3 == 2 {
				Expect(client.Del(ctx, "a").Err()).To(Succeed())
			}
			lock := w.Granted()
			w = spec.StartWaiter(ctx, locks, time.Minute, queue, "b", "a")
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(w.Granted().Release(ctx)).To(Succeed())
		}
		Expect(name.subscribed.Load()).To(Equal(int32(1)))
	})
})
