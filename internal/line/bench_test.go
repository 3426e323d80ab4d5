package line_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

// BenchmarkLine lets many wait for many keys, from four connection pools, behind a holder that is kept for 10 s, and
// serves them. An unrelated lock with a ttl of 2 s is kept beside it. It fails if a lock is lost or somebody gets none,
// and reports how many of the two kept locks lapsed, how many waiters were served out of turn, how long all took to get in
// line and to be served, what share of a core the server spent in the last 5 s of waiting, and what its longest script was.
// With -short, a tenth of the waiters wait for a tenth of the time.
func BenchmarkLine(b *testing.B) {
	for _, size := range []struct{ waiters, keys int }{{400, 500}, {100, 5000}, {40, 10_000}, {3000, 1}, {10_000, 1}} {
		b.Run(fmt.Sprintf("waiters=%d/keys=%d", size.waiters, size.keys), func(b *testing.B) {
			for b.Loop() {
				waiters := size.waiters
				if testing.Short() {
					waiters /= 10
				}
				benchLine(b, waiters, spec.BenchKeys(size.keys))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchLine(b *testing.B, waiters int, keys []string) {
	client := spec.BenchClient(b)
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	kept := func(keys []string, ttl time.Duration) (*redislock.Lock, context.Context) {
		own := redis.NewClient(&redis.Options{Addr: client.Options().Addr})
		b.Cleanup(func() { _ = own.Close() })
		lock, err := redislock.New(own).ObtainMulti(ctx, keys, ttl, nil)
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := lock.KeepAlive(ctx)
		b.Cleanup(stop)
		return lock, ctx
	}
	_, unrelated := kept([]string{"unrelated"}, 2*time.Second)
	held, holding := kept(keys, 10*time.Second)
	began := time.Now()
	var pools []*redislock.Client
	for range 4 {
		pool := redis.NewClient(&redis.Options{Addr: client.Options().Addr, PoolSize: 64})
		b.Cleanup(func() { _ = pool.Close() })
		pools = append(pools, redislock.New(pool))
	}
	var mu sync.Mutex // protects what follows
	var order []int
	var failed []error
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			opt := &redislock.Options{Queue: true, Metadata: strconv.Itoa(i)}
			lock, err := pools[i%len(pools)].ObtainMulti(ctx, keys, 30*time.Second, opt)
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err == nil {
				err = lock.Release(ctx)
			}
			if err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	line := func() (positions []int) { // who stands there, in order
		for _, entry := range client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: spec.LineKey(keys[0]), Start: 0, Stop: "+inf", ByScore: true}).Val() {
			position, _ := strconv.Atoi(entry[strings.LastIndexByte(entry, ' ')+1:])
			positions = append(positions, position)
		}
		return positions
	}
	var entered time.Duration
	for entered == 0 && time.Since(began) < spec.Briefly(9*time.Second) {
		time.Sleep(spec.Briefly(100 * time.Millisecond))
		if client.ZCount(ctx, spec.LineKey(keys[0]), "0", "+inf").Val() == int64(waiters) {
			entered = time.Since(began)
		}
	}
	time.Sleep(time.Until(began.Add(spec.Briefly(5 * time.Second))))
	before, since := serverCPU(client), time.Now()
	time.Sleep(time.Until(began.Add(spec.Briefly(10 * time.Second))))
	share := float64(serverCPU(client)-before) / float64(time.Since(since))
	positions := line()
	lapsed := 0
	stillHeld := func(who string, held context.Context) {
		switch cause := context.Cause(held); {
		case errors.Is(cause, redislock.ErrLapsed): // on a busy machine, a measurement and no error
			lapsed++
		case cause != nil:
			b.Errorf("%s: %v", who, cause)
		}
	}
	stillHeld("the holder", holding)
	_ = client.ConfigResetStat(ctx).Err()
	freed, spent := time.Now(), serverCPU(client)
	if err := held.Release(ctx); err != nil && lapsed == 0 {
		b.Errorf("the holder: %v", err)
	}
	all.Wait()
	drained, used := time.Since(freed), serverCPU(client)-spent
	stillHeld("the unrelated lock", unrelated)
	b.ReportMetric(float64(lapsed), "lapsed")
	for i, err := range failed {
		if i < 3 {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(len(failed)), "failed")
	outOfTurn := 0
	for i := range order {
		if i >= len(positions) || order[i] != positions[i] {
			outOfTurn++
		}
	}
	if !slices.Equal(order, positions) && len(order) < 500 {
		b.Logf("served %v, stood in line %v", order, positions)
	}
	b.ReportMetric(float64(outOfTurn), "out-of-turn")
	b.ReportMetric(entered.Seconds(), "entered-s")
	b.ReportMetric(100*share, "waiting-server-%")
	b.ReportMetric(drained.Seconds(), "served-s")
	b.ReportMetric(float64(used.Microseconds())/float64(waiters), "server-µs/lock")
	for _, pool := range pools {
		_ = pool.Close()
	}
	if stats := client.Info(ctx, "commandstats").Val(); testing.Verbose() {
		for stat := range strings.SplitSeq(stats, "\r\n") {
			if strings.HasPrefix(stat, "cmdstat_eval") {
				b.Log(stat)
			}
		}
	}
}

// BenchmarkReleaseInLine releases one key that 5,000 wait for: all of them late, or all of a process that is gone. It
// reports the server's time for the script.
func BenchmarkReleaseInLine(b *testing.B) {
	for _, kind := range []string{"late", "gone"} {
		b.Run(kind+"=5000", func(b *testing.B) {
			client := spec.BenchClient(b)
			ctx := b.Context()
			release := redis.NewScript(spec.Source("release"))
			spent := func() (total float64) {
				for stat := range strings.SplitSeq(client.Info(ctx, "commandstats").Val(), "\r\n") {
					if rest, found := strings.CutPrefix(stat, "cmdstat_eval"); found {
						_, usec, _ := strings.Cut(rest, "usec=")
						usec, _, _ = strings.Cut(usec, ",")
						us, _ := strconv.ParseFloat(usec, 64)
						total += us
					}
				}
				return total
			}
			var us []float64
			for b.Loop() {
				client.FlushAll(ctx)
				client.Set(ctx, "a", "t", time.Minute)
				left := 2900 * time.Millisecond
				if kind == "late" {
					left = 900 * time.Millisecond
				}
				for i := range 5000 {
					id := "box/" + strconv.Itoa(i)
					client.ZAdd(ctx, spec.LineKey("a"), redis.Z{Score: float64(i + 1), Member: id + " 1 60000 0 t" + strconv.Itoa(i)},
						redis.Z{Score: spec.Mark(time.Now().Add(left), 3, kind == "gone"), Member: "~" + id})
				}
				before := spent()
				if err := release.Run(ctx, client, []string{"a", spec.LineKey("a")}, "t", 1).Err(); err != nil {
					b.Fatal(err)
				}
				us = append(us, spent()-before)
			}
			slices.Sort(us)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(us[len(us)/2], "server-µs")
		})
	}
}
