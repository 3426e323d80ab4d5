package several_test

import (
	"context"
	"fmt"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = func() bool {
	for _, kind := range []string{spec.InMemory, spec.OnServer} {
		spec.DescribeQuorumOf(kind, 3, "many kept locks", keepMany)
	}
	return true
}()

func keepMany(on *spec.Quorum) {
	const many = 200
	var keys []string

	// there returns how many of the keys a server has.
	there := func(ctx context.Context, s *spec.Server) int64 { return s.Own.Exists(ctx, keys...).Val() }
	// keep obtains them, and waits until they are on all servers.
	keep := func(ctx context.Context, ttl time.Duration) {
		GinkgoHelper()
		keys = nil
		for i := range many {
			keys = append(keys, fmt.Sprint("key ", i))
			_, stop := spec.Obtain(ctx, on.Locks, ttl, nil, keys[i]).KeepAlive(ctx)
			DeferCleanup(stop)
		}
		for _, s := range on.Servers {
			Eventually(there).WithArguments(ctx, s).Should(BeEquivalentTo(many))
		}
	}
	expectMended := func(ctx context.Context, s *spec.Server) {
		GinkgoHelper()
		back := time.Now()
		Eventually(there).WithArguments(ctx, s).WithTimeout(5 * time.Second).WithPolling(10 * time.Millisecond).
			Should(BeEquivalentTo(many))
		AddReportEntry("mended after", time.Since(back).String(), ReportEntryVisibilityFailureOrVerbose)
	}

	It("do not all wait for a server that hangs, and have their keys there again soon after", func(ctx SpecContext) {
		keep(ctx, 3*time.Second)
		before := runtime.NumGoroutine()
		on.Servers[0].Hang()
		time.Sleep(4500 * time.Millisecond)                                  // until all locks have lost their holds there, and would have them again
		Expect(runtime.NumGoroutine()).To(BeNumerically("<", before+many/2)) // in memory, a connection has some
		on.Servers[0].Restore()
		expectMended(ctx, on.Servers[0])
	})

	It("have their keys at a server that was down and has forgotten them", func(ctx SpecContext) {
		keep(ctx, 3*time.Second)
		before := runtime.NumGoroutine()
		on.Servers[0].Kill()
		time.Sleep(4500 * time.Millisecond)
		Expect(runtime.NumGoroutine()).To(BeNumerically("<", before+many/2)) // in memory, a connection has some
		on.Servers[0].Restore()
		expectMended(ctx, on.Servers[0])
	})
}
