package several_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/testing/spec"
)

var failures = map[string]func(*spec.Server){"hung": (*spec.Server).Hang, "dead": (*spec.Server).Kill}

var _ = spec.DescribeQuorum("a failure", func(on *spec.Quorum) {
	for what, how := range failures {
		Describe("of servers that are "+what, func() {
			It("costs nothing as long as a majority answers", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare(), how)
				start := time.Now()
				for range 100 {
					lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a", "b")
					Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
					Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
					_, err := on.Locks.Obtain(ctx, "b", time.Minute, nil)
					Expect(err).To(Equal(redislock.ErrNotObtained))
					Expect(lock.Release(ctx)).To(Succeed())
				}
				took := time.Since(start)
				AddReportEntry("100 locks", took.String(), ReportEntryVisibilityFailureOrVerbose)
				Expect(took).To(BeNumerically("<", spec.Bound(on.Kind, 2*time.Second, 15*time.Second))) // each of 500 calls would wait 100 ms for one of them
			})

			It("is an error that names the servers if no majority answers, soon", func(ctx SpecContext) {
				for _, known := range []bool{false, true} {
					calls, most := 1, health.LongPatience // as long as nobody knows how long a connection takes
					if known {
						calls, most = 3, health.FirstPatience
						on.Warm(ctx)
					}
					on.Fail(on.Spare()+1, how)
					for range calls {
						start := time.Now()
						_, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
						Expect(time.Since(start)).To(BeNumerically("<", most+spec.Bound(on.Kind, 50*time.Millisecond, 2*time.Second)), "%v %v", known, err)
						Expect(err).To(HaveOccurred())
						Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
						for i, s := range on.Servers {
							if i <= on.Spare() {
								Expect(err).To(MatchError(ContainSubstring(s.Name)))
							} else {
								Expect(err).NotTo(MatchError(ContainSubstring(s.Name)))
							}
						}
					}
					on.Fail(on.Spare()+1, (*spec.Server).Restore)
					Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
					Eventually(func() error { // they may be reached again only when a connection has timed out
						lock, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
						if err == nil {
							err = lock.Release(ctx)
						}
						return err
					}).WithTimeout(10 * time.Second).Should(Succeed())
				}
			})

			It("makes who waits in line wait on, until ctx ends, and say why", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare()+1, how)
				limited, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
				defer cancel()
				start := time.Now()
				tries := 0
				locks := on.Connect(redislock.WithTracer(&redislock.Tracer{
					ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries = end.Tries },
				}))
				_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
				Expect(tries).To(BeNumerically("<", 10)) // and does not ask the other servers again and again
				Expect(err).To(MatchError(context.DeadlineExceeded))
				Expect(err).To(MatchError(ContainSubstring(on.Servers[0].Name)))
				Expect(time.Since(start)).To(BeNumerically("~", 1500*time.Millisecond, 300*time.Millisecond))
			})

			It("is over for who waits in line when the servers are back", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare()+1, how)
				granted := make(chan error)
				go func() {
					lock, err := on.Locks.Obtain(spec.Within(ctx, time.Minute), "a", time.Minute, &redislock.Options{Queue: true})
					if err == nil {
						err = lock.Release(ctx)
					}
					granted <- err
				}()
				Consistently(granted).WithTimeout(time.Second).ShouldNot(Receive())
				on.Fail(on.Spare()+1, (*spec.Server).Restore)
				Eventually(granted).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
				Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
			})

			It("ends the first try in line if ctx has no deadline, but not at once", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare()+1, how)
				start := time.Now()
				_, err := on.Locks.Obtain(context.WithoutCancel(ctx), "a", time.Minute, &redislock.Options{Queue: true})
				Expect(time.Since(start)).To(BeNumerically("~", 2500*time.Millisecond, spec.Bound(on.Kind, 600*time.Millisecond, time.Second)))
				Expect(err).To(MatchError(ContainSubstring(on.Servers[0].Name)))
				Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			})

			It("makes every method return when its ctx ends", func(ctx SpecContext) {
				lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
				on.Fail(on.Spare()+1, how)
				for _, method := range []struct {
					name string
					call func(context.Context) error
				}{
					{"TTL", func(ctx context.Context) error { _, err := lock.TTL(ctx); return err }},
					{"Inspect", func(ctx context.Context) error { _, err := on.Locks.Inspect(ctx, "a"); return err }},
					{"Line", func(ctx context.Context) error { _, err := on.Locks.Line(ctx, "a"); return err }},
					{"Attach", func(ctx context.Context) error { _, err := on.Locks.Attach(ctx, []string{"a"}, "t"); return err }},
					{"Refresh", func(ctx context.Context) error { return lock.Refresh(ctx, time.Minute, nil) }},
					{"Release", lock.Release}, // the last, for it gives the lock up
				} {
					start := time.Now()
					limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					err := method.call(limited)
					cancel()
					Expect(err).To(HaveOccurred(), method.name)
					Expect(err).NotTo(Or(MatchError(redislock.ErrLockNotHeld), MatchError(redislock.ErrNotObtained)), method.name)
					Expect(time.Since(start)).To(BeNumerically("<", 100*time.Millisecond+spec.Soon), method.name)
				}
			})
		})
	}

	It("leaves nothing behind of an obtain that its caller gives up", func(ctx SpecContext) {
		on.Warm(ctx)
		for _, opt := range []*redislock.Options{
			nil, {Queue: true}, {RetryStrategy: redislock.LinearBackoff(time.Millisecond)},
		} {
			on.Fail(on.Spare()+1, (*spec.Server).Hang)
			_, err := on.Locks.Obtain(spec.Within(ctx, 20*time.Millisecond), "a", time.Minute, opt)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			on.Fail(on.Spare()+1, (*spec.Server).Restore)
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10*time.Second).Should(BeEmpty(), "%+v", opt)
		}
	})
})

var _ = Describe("A quorum of two servers", Label(spec.InMemory), func() {
	It("needs both, mints fencing tokens, and names the one that hangs", func(ctx SpecContext) {
		on := &spec.Quorum{Kind: spec.InMemory}
		on.Begin(ctx, 2)
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a")
		Expect(lock.FenceToken()).To(BeNumerically(">", 0))
		Expect(lock.Release(ctx)).To(Succeed())
		on.Servers[1].Hang()
		start := time.Now()
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(time.Since(start)).To(BeNumerically("<", 300*time.Millisecond))
		Expect(err).To(MatchError(ContainSubstring(on.Servers[1].Name)))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
	})

	// As when this process stood still: its timer and the answers wait for it together.
	It("looks at the answers that are there when a server has been silent for too long", func(ctx SpecContext) {
		on := &spec.Quorum{Kind: spec.InMemory}
		on.Begin(ctx, 2)
		Expect(spec.Obtain(ctx, on.Locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		on.Servers[1].Hang()
		time.AfterFunc(101*time.Millisecond, on.Servers[1].Restore)
		Expect(spec.Obtain(ctx, on.Locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})
})

// go-redis dials for longer than a quorum waits, and than many a ctx lasts. The reason shows all the same.
func TestQuorumNamesRefusedPorts(t *testing.T) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listen.Addr().String()
	_ = listen.Close()
	var servers []redislock.RedisClient
	for range 3 {
		client := redis.NewClient(&redis.Options{Addr: address})
		t.Cleanup(func() { _ = client.Close() })
		servers = append(servers, client)
	}
	locks := redislock.NewQuorum(servers)
	for _, opt := range []*redislock.Options{nil, {Queue: true}} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = locks.Obtain(ctx, "a", time.Minute, opt)
		cancel()
		if err == nil || strings.Count(err.Error(), "connection refused") != 3 || strings.Contains(err.Error(), "no answer") {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}
