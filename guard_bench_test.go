package redislock_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

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
