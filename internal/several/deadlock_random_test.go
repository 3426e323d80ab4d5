package several_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

// randomCircles runs random specs of nested waits. REDISLOCK_TEST_RUNS is how many circles of each size, and a hundredth of
// the nested waits without one.
func randomCircles(across bool, clients func() []*redislock.Client, disturb func(ctx context.Context, random *rand.Rand)) {
	opt := &redislock.Options{Queue: true, AcrossSlots: across}
	const ttl = 20 * time.Second

	It("of 2, 3 and 8 end soon, and exactly one gives up", func(ctx SpecContext) {
		const most = 24 // circles at a time
		locks := clients()
		room := make(chan struct{}, most)
		var all sync.WaitGroup
		var longest atomic.Int64
		for run := range spec.Runs(8) {
			for _, n := range []int{2, 3, 8} {
				room <- struct{}{}
				all.Go(func() {
					defer GinkgoRecover()
					defer func() { <-room }()
					took := oneCircle(ctx, locks, opt, fmt.Sprint("circle ", run, " of ", n), n)
					for last := longest.Load(); int64(took) > last && !longest.CompareAndSwap(last, int64(took)); {
						last = longest.Load()
					}
				})
			}
		}
		all.Wait()
		AddReportEntry("the longest took", time.Duration(longest.Load()), ReportEntryVisibilityFailureOrVerbose)
	})

	It("are never seen where locks are nested in one order, beside losses and killed connections", func(ctx SpecContext) {
		const callers, outers, inners = 600, 200, 4
		locks := clients()
		left := atomic.Int64{}
		left.Store(int64(100 * spec.Runs(4)))
		var all sync.WaitGroup
		var long, failed atomic.Int64
		ended := make(chan struct{})
		go func() { // ends with the spec
			defer GinkgoRecover()
			random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Duration(random.IntN(200)) * time.Millisecond):
					disturb(ctx, random)
				}
			}
		}()
		for i := range callers {
			all.Go(func() {
				defer GinkgoRecover()
				for left.Add(-1) >= 0 {
					mine, other := locks[i%len(locks)], locks[rand.N(len(locks))]
					limited, cancel := context.WithTimeout(ctx, 3*time.Second+rand.N(20*time.Second))
					err := mine.Do(limited, []string{fmt.Sprint("outer ", rand.N(outers))}, ttl, opt, func(ctx context.Context) error {
						began := time.Now()
						first := rand.N(inners)
						keys := []string{fmt.Sprint("inner ", first), fmt.Sprint("inner ", min(first+rand.N(2), inners-1))}
						err := other.Do(ctx, keys, ttl, opt, func(context.Context) error {
							time.Sleep(rand.N(60 * time.Millisecond))
							return nil
						})
						if time.Since(began) > 1200*time.Millisecond {
							long.Add(1)
						}
						return err
					})
					cancel()
					Expect(errors.Is(err, redislock.ErrDeadlock)).To(BeFalse(), "%v", err)
					if err != nil {
						failed.Add(1)
					}
				}
			})
		}
		all.Wait()
		close(ended)
		AddReportEntry("searched, lost or late", []int64{long.Load(), failed.Load()}, ReportEntryVisibilityFailureOrVerbose)
	})
}

// oneCircle makes n callers wait in a circle, and returns how long it takes from the last wait until all are done.
func oneCircle(ctx context.Context, locks []*redislock.Client, opt *redislock.Options, name string, n int) time.Duration {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // with a deadline, a busy machine is no error
	defer cancel()
	inside, begin := make(chan struct{}, n), make(chan struct{})
	var mu sync.Mutex // protects events
	var events []string
	note := func(i int, what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprint(time.Now().Format("05.000 "), i, " ", what, " ", err))
	}
	var all sync.WaitGroup
	var gaveUp atomic.Int64
	var last atomic.Int64
	for i := range n {
		all.Go(func() {
			defer GinkgoRecover()
			key := func(i int) []string { return []string{fmt.Sprint(name, " key ", i%n)} }
			err := locks[rand.N(len(locks))].Do(ctx, key(i), 20*time.Second, opt, func(ctx context.Context) error {
				inside <- struct{}{}
				<-begin
				time.Sleep(rand.N(300 * time.Millisecond))
				last.Store(time.Now().UnixNano())
				err := locks[rand.N(len(locks))].Do(ctx, key(i+1), 20*time.Second, opt, func(context.Context) error {
					note(i, "holds both", nil)
					return nil
				})
				note(i, "waits no more", err)
				return err
			})
			note(i, "holds nothing", err)
			if errors.Is(err, redislock.ErrDeadlock) {
				gaveUp.Add(1)
			} else if err != nil {
				cancel()
				Fail(err.Error())
			}
		})
	}
	for range n {
		select {
		case <-inside:
		case <-ctx.Done():
			close(begin)
			Fail(name + ": some did not obtain their own keys")
		}
	}
	close(begin)
	all.Wait()
	took := time.Since(time.Unix(0, last.Load()))
	Expect(gaveUp.Load()).To(Equal(int64(1)), name)
	// usually 1 to 3 s; a busy machine may take longer, but not until a later try in line
	Expect(took).To(BeNumerically("<", 12*time.Second), "%s, since %s: %s", name, time.Unix(0, last.Load()).Format("05.000"),
		strings.Join(events, "\n"))
	return took
}

// disturbing returns what takes a random key from its holder, or kills a connection, at these servers.
func disturbing(servers func() []*redis.Client) func(ctx context.Context, random *rand.Rand) {
	return func(ctx context.Context, random *rand.Rand) {
		all := servers()
		server := all[random.IntN(len(all))]
		switch random.IntN(3) {
		case 0:
			server.Del(ctx, fmt.Sprint("inner ", random.IntN(4)))
		case 1:
			server.Del(ctx, fmt.Sprint("outer ", random.IntN(200)))
		case 2:
			server.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes", "MAXAGE", "1")
		}
	}
}

var _ = spec.DescribeOn(spec.OnServer, "Circles", func(on *spec.Redis) {
	randomCircles(false, func() (clients []*redislock.Client) {
		for range 4 {
			clients = append(clients, redislock.New(spec.Connect(on.Client.Options())))
			DeferCleanup(clients[len(clients)-1].Close)
		}
		return clients
	}, disturbing(func() []*redis.Client { return []*redis.Client{on.Client} }))
})

var _ = spec.DescribeQuorumOf(spec.OnServer, 3, "circles", func(on *spec.Quorum) {
	randomCircles(false, func() (clients []*redislock.Client) {
		for range 4 {
			clients = append(clients, on.Connect())
		}
		return clients
	}, disturbing(func() (servers []*redis.Client) {
		for _, s := range on.Servers {
			servers = append(servers, s.Own)
		}
		return servers
	}))
})
