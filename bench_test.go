package redislock_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

// The floor under ObtainMulti and Release: the least that scripts can do.
var (
	bareObtain = redis.NewScript(`
		local args = {}
		for i = 1, #KEYS do args[2 * i - 1] = KEYS[i]; args[2 * i] = ARGV[1] end
		if redis.call('MSETNX', unpack(args)) == 0 then return 0 end
		for i = 1, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
		return 1`)
	bareRelease = redis.NewScript(`
		local values = redis.call('MGET', unpack(KEYS))
		for i = 1, #values do if values[i] ~= ARGV[1] then return 0 end end
		return redis.call('DEL', unpack(KEYS))`)
)

// BenchmarkObtainRelease takes a lock and releases it. ctx=cancel does so with a ctx that can end, as most programs do;
// bare runs two bare scripts in place of the library's.
func BenchmarkObtainRelease(b *testing.B) {
	client := spec.BenchClient(b)
	locks := redislock.New(client)
	ctx := context.Background()
	pair := func(b *testing.B, ctx context.Context, keys []string, opt *redislock.Options) {
		lock, err := locks.ObtainMulti(ctx, keys, time.Minute, opt)
		if err != nil {
			b.Error(err)
			return
		}
		if err := lock.Release(ctx); err != nil {
			b.Error(err)
		}
	}
	for _, n := range []int{1, 8, 64, 512, 4096} {
		keys := spec.BenchKeys(n)
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pair(b, ctx, keys, nil)
			}
		})
		if n > 512 {
			continue // a bare script has its limit at 3,999
		}
		b.Run(fmt.Sprintf("keys=%d/bare", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bareObtain.Run(ctx, client, keys, "q83vEjRWeJCrze8SNFZ4kA", 60_000).Err(); err != nil {
					b.Fatal(err)
				}
				if err := bareRelease.Run(ctx, client, keys, "q83vEjRWeJCrze8SNFZ4kA").Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("keys=1/ctx=cancel", func(b *testing.B) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			pair(b, ctx, []string{"bench"}, nil)
		}
	})
	b.Run("keys=1/fence", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pair(b, ctx, []string{"bench"}, &redislock.Options{FenceKey: "bench:fence"})
		}
	})
	for _, goroutines := range []int{16, 256} {
		b.Run(fmt.Sprintf("keys=1/goroutines=%d", goroutines), func(b *testing.B) {
			b.ReportAllocs()
			share := make(chan struct{})
			var wait sync.WaitGroup
			for i := range goroutines {
				wait.Go(func() {
					key := []string{"bench:" + strconv.Itoa(i)}
					for range share {
						pair(b, ctx, key, nil)
					}
				})
			}
			for b.Loop() {
				share <- struct{}{}
			}
			close(share)
			wait.Wait()
		})
	}
}

// BenchmarkShared takes a key that others share, refreshes it, asks for its ttl, and releases it, each by itself.
func BenchmarkShared(b *testing.B) {
	client := spec.BenchClient(b)
	locks := redislock.New(client)
	ctx := context.Background()
	shared := &redislock.Options{Shared: []string{"bench:shared"}}
	obtain := func(b *testing.B) *redislock.Lock {
		b.Helper()
		lock, err := locks.Obtain(ctx, "bench:shared", time.Hour, shared)
		if err != nil {
			b.Fatal(err)
		}
		return lock
	}
	held := 0
	for _, others := range []int{0, 10, 100, 10_000} {
		for ; held < others; held++ {
			obtain(b)
		}
		mine := obtain(b)
		run := func(what string, do func() error) {
			b.Run(fmt.Sprintf("others=%d/%s", others, what), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("pair", func() error { return obtain(b).Release(ctx) })
		run("refresh", func() error { return mine.Refresh(ctx, time.Hour, nil) })
		run("ttl", func() error {
			_, err := mine.TTL(ctx)
			return err
		})
		run("refused", func() error {
			if _, err := locks.Obtain(ctx, "bench:shared", time.Hour, nil); err != redislock.ErrNotObtained {
				return fmt.Errorf("an exclusive caller got %w", err)
			}
			return nil
		})
		if err := mine.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKeepAlive keeps 10,000 locks with a ttl of 2 s alive, for 6 s an iteration: -benchtime 10x is a minute. It
// reports what that takes, and fails if a lock is lost.
func BenchmarkKeepAlive(b *testing.B) {
	const locked = 10_000
	client := spec.BenchClient(b)
	locks := redislock.New(client)
	ctx := context.Background()
	goroutines := runtime.NumGoroutine()
	held := make([]*redislock.Lock, locked)
	kept := make([]context.Context, locked)
	for i := range held {
		var err error
		if held[i], err = locks.Obtain(ctx, "bench:"+strconv.Itoa(i), time.Minute, nil); err != nil {
			b.Fatal(err)
		}
	}
	before := heap()
	for i, lock := range held {
		kept[i], _ = lock.KeepAlive(ctx) // ended by Close
	}
	perLock := float64(heap()-before) / locked
	for _, lock := range held {
		if err := lock.Refresh(ctx, 2*time.Second, nil); err != nil {
			b.Fatal(err)
		}
	}
	trips := &spec.PipelineCount{}
	client.AddHook(trips)
	most := 0
	for b.Loop() {
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
			most = max(most, runtime.NumGoroutine())
		}
	}
	for _, k := range kept {
		if k.Err() != nil {
			b.Fatal(context.Cause(k))
		}
	}
	sent, renewals := trips.Counts()
	b.ReportMetric(perLock, "B/lock")
	b.ReportMetric(float64(most-goroutines), "goroutines")
	b.ReportMetric(float64(renewals)/float64(sent), "renewals/trip")
	b.ReportMetric(0, "ns/op")
	if err := locks.Close(); err != nil {
		b.Fatal(err)
	}
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// BenchmarkRefused asks for keys of which the last is another's.
func BenchmarkRefused(b *testing.B) {
	locks := redislock.New(spec.BenchClient(b))
	ctx := context.Background()
	for _, n := range []int{1, 8, 512} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			keys := spec.BenchKeys(n)
			held, err := locks.Obtain(ctx, keys[n-1], time.Hour, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := locks.ObtainMulti(ctx, keys, time.Minute, nil); err != redislock.ErrNotObtained {
					b.Fatal(err)
				}
			}
			if err := held.Release(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkLock does to a held lock what its holder does.
func BenchmarkLock(b *testing.B) {
	locks := redislock.New(spec.BenchClient(b))
	ctx := context.Background()
	for _, n := range []int{1, 8, 512} {
		lock, err := locks.ObtainMulti(ctx, spec.BenchKeys(n), time.Hour, nil)
		if err != nil {
			b.Fatal(err)
		}
		for name, method := range map[string]func() error{
			"Refresh": func() error { return lock.Refresh(ctx, time.Hour, nil) },
			"TTL":     func() error { _, err := lock.TTL(ctx); return err },
			"Inspect": func() error { _, err := locks.Inspect(ctx, lock.Keys()...); return err },
		} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := method(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := lock.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGuard does the same with a guard that is open, and without one: compare with benchstat -col /guard.
func BenchmarkGuard(b *testing.B) {
	const maxTTL, deposed = time.Minute, 3 * time.Second
	client := spec.BenchClient(b)
	if err := spec.OpenGuard(b.Context(), client, maxTTL, deposed); err != nil {
		b.Fatal(err)
	}
	clients := map[bool]*redislock.Client{
		false: redislock.New(client),
		true:  redislock.New(client, redislock.WithGuard(maxTTL, deposed)),
	}
	for _, goroutines := range []int{1, 16, 256} {
		for _, guard := range []bool{false, true} {
			b.Run(fmt.Sprintf("ObtainRelease/goroutines=%d/guard=%v", goroutines, guard), func(b *testing.B) {
				benchPairs(b, clients[guard], goroutines)
			})
		}
	}
	for _, guard := range []bool{false, true} {
		b.Run(fmt.Sprintf("KeepAlive/locks=10000/guard=%v", guard), func(b *testing.B) {
			benchRenewals(b, client, clients[guard], 10_000)
		})
	}
}

// benchPairs acquires and releases locks in goroutines, each with a key of its own.
func benchPairs(b *testing.B, locks *redislock.Client, goroutines int) {
	ctx := context.Background()
	b.ReportAllocs()
	pair := func(key string) {
		lock, err := locks.Obtain(ctx, key, time.Minute, nil)
		if err != nil {
			b.Error(err)
			return
		}
		if err := lock.Release(ctx); err != nil {
			b.Error(err)
		}
	}
	if goroutines == 1 {
		for b.Loop() {
			pair("bench")
		}
		return
	}
	share := make(chan struct{})
	var wait sync.WaitGroup
	for i := range goroutines {
		wait.Go(func() {
			key := "bench:" + strconv.Itoa(i)
			for range share {
				pair(key)
			}
		})
	}
	for b.Loop() {
		share <- struct{}{}
	}
	close(share)
	wait.Wait()
}

// benchRenewals keeps locks with a ttl of 6 s alive, for 6 s an iteration. It reports how long the server takes for a
// renewal, by its own count, and fails if a lock is lost.
func benchRenewals(b *testing.B, client *redis.Client, locks *redislock.Client, locked int) {
	ctx := context.Background()
	held := make([]*redislock.Lock, locked)
	kept := make([]context.Context, locked)
	for i := range held {
		var err error
		if held[i], err = locks.Obtain(ctx, "bench:"+strconv.Itoa(i), 6*time.Second, nil); err != nil {
			b.Fatal(err)
		}
		var stop context.CancelFunc
		kept[i], stop = held[i].KeepAlive(ctx)
		b.Cleanup(stop)
	}
	calls, micros := scriptTime(b, client)
	for b.Loop() {
		time.Sleep(spec.Briefly(6 * time.Second))
	}
	callsAfter, microsAfter := scriptTime(b, client)
	b.ReportMetric(0, "ns/op")
	if n := callsAfter - calls; n > 0 {
		b.ReportMetric((microsAfter-micros)/n, "server-µs/renewal")
	}
	for i, k := range kept {
		if k.Err() != nil {
			b.Fatal(context.Cause(k))
		}
		if err := held[i].Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// scriptTime returns how many scripts the server has run by their hash, and for how many µs; 0 if it does not count them.
func scriptTime(b *testing.B, client *redis.Client) (calls, micros float64) {
	b.Helper()
	info, _ := client.Info(context.Background(), "commandstats").Result() // miniredis has none
	found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0, 0
	}
	calls, _ = strconv.ParseFloat(found[1], 64)
	micros, _ = strconv.ParseFloat(found[2], 64)
	return calls, micros
}

// instant is a Redis that grants and releases everything at once, so that what the library itself costs can be seen.
type instant struct{ redis.Scripter }

func (instant) EvalSha(_ context.Context, _ string, _ []string, args ...any) *redis.Cmd {
	if len(args) == 1 { // a release: the token
		return redis.NewCmdResult(int64(0), nil)
	}
	return redis.NewCmdResult(int64(1), nil)
}

// BenchmarkTracer takes a lock and releases it, without a Tracer and with one whose functions do nothing.
func BenchmarkTracer(b *testing.B) {
	empty := &redislock.Tracer{
		ObtainStart: func(ctx context.Context, _ redislock.ObtainStart) context.Context { return ctx },
		Refused:     func(context.Context, redislock.Refused) {},
		ObtainEnd:   func(context.Context, redislock.ObtainEnd) {},
		Refreshed:   func(context.Context, redislock.Refreshed) {},
		Lost:        func(context.Context, redislock.Lost) {},
		Released:    func(context.Context, redislock.Released) {},
		CleanedUp:   func(context.Context, redislock.CleanedUp) {},
	}
	for name, tracer := range map[string]*redislock.Tracer{"unset": nil, "empty": empty} {
		locks := redislock.New(instant{}, redislock.WithTracer(tracer))
		b.Run("tracer="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lock, err := locks.Obtain(context.Background(), "a", time.Minute, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
