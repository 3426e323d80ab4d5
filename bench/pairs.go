package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// pairs lets l take and release locks for a slice of time, after a warm-up, in a goroutine for each set of keys.
func (s servers) pairs(newCtx newContext, l *locker, sets [][]string, t turns) (figures, error) {
	if _, err := newBurst(newCtx, l, sets).run(t.warmUp); err != nil {
		return nil, err
	}
	burst := newBurst(newCtx, l, sets)
	runtime.GC() // so that no contestant pays for the garbage of another
	before, err := s.stats(context.Background())
	if err != nil {
		return nil, err
	}
	var memory, memoryAfter runtime.MemStats
	runtime.ReadMemStats(&memory)
	cpu, err := processCPU()
	if err != nil {
		return nil, err
	}
	took, err := burst.run(t.slice)
	if err != nil {
		return nil, err
	}
	cpuAfter, err := processCPU()
	if err != nil {
		return nil, err
	}
	runtime.ReadMemStats(&memoryAfter)
	after, err := s.stats(context.Background())
	if err != nil {
		return nil, err
	}
	latencies := slices.Sorted(slices.Values(burst.merged()))
	n := float64(len(latencies))
	f := figures{
		pairRate.head:  n / took.Seconds(),
		wall.head:      micros(took) / n,
		median.head:    quantile(latencies, 0.5),
		tail.head:      quantile(latencies, 0.99),
		clientCPU.head: micros(cpuAfter-cpu) / n,
		allocs.head:    float64(memoryAfter.Mallocs-memory.Mallocs) / n,
		allocated.head: float64(memoryAfter.TotalAlloc-memory.TotalAlloc) / n,
	}
	after.since(before).perLock(f, l.sends, n)
	return f, nil
}

// newContext returns a ctx for one goroutine, and a function that ends it. The ctx matters for the measurement: a
// library may do more with a ctx that can be cancelled. Each goroutine has its own, as each request of a service does.
type newContext func() (context.Context, context.CancelFunc)

// background returns the ctx that never ends.
func background() (context.Context, context.CancelFunc) { return context.Background(), func() {} }

// cancellable returns a ctx that can be cancelled. Nobody cancels it while the goroutine runs.
func cancellable() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// burst is goroutines that are ready to take and release locks. They allocate their own memory before they run.
type burst struct {
	start     chan struct{} // closed by run
	end       time.Time     // set before start is closed
	wait      sync.WaitGroup
	latencies [][]time.Duration // one slice for each goroutine
	errs      []error           // likewise
}

// roomForLatencies is how many latencies all goroutines together can note without allocating: more than those of a second.
const roomForLatencies = 1 << 18

// newBurst starts a goroutine for each set of keys. They wait for run, which must be called.
func newBurst(newCtx newContext, l *locker, sets [][]string) *burst {
	b := &burst{
		start:     make(chan struct{}),
		latencies: make([][]time.Duration, len(sets)),
		errs:      make([]error, len(sets)),
	}
	for i, keys := range sets {
		b.latencies[i] = make([]time.Duration, 0, roomForLatencies/len(sets))
		ctx, cancel := newCtx()
		b.wait.Go(func() {
			defer cancel()
			<-b.start
			b.errs[i] = b.loop(ctx, l, keys, &b.latencies[i])
		})
	}
	return b
}

func (b *burst) loop(ctx context.Context, l *locker, keys []string, latencies *[]time.Duration) error {
	for began := time.Now(); began.Before(b.end); {
		if err := l.pair(ctx, keys); err != nil {
			return err
		}
		ended := time.Now()
		*latencies = append(*latencies, ended.Sub(began))
		began = ended
	}
	return nil
}

// run lets the goroutines go, and blocks until the last of them has ended its last pair. It returns how long that took,
// and an error if any of them had one.
func (b *burst) run(d time.Duration) (time.Duration, error) {
	began := time.Now()
	b.end = began.Add(d)
	close(b.start)
	b.wait.Wait()
	return time.Since(began), errors.Join(b.errs...)
}

// merged returns the latencies of all, in µs.
func (b *burst) merged() []float64 {
	var all []float64
	for _, latencies := range b.latencies {
		for _, latency := range latencies {
			all = append(all, micros(latency))
		}
	}
	return all
}

// micros returns d in µs.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
