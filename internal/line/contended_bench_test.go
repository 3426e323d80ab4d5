package line_test

import (
	"context"
	"fmt"
	"runtime"
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

// BenchmarkContended lets many contend for one key, from four connection pools, with holds of a millisecond, for two
// seconds: in line, and then with each of some polling strategies. It reports what makes a line: how even the share of
// each contender is (Jain's index: 1 is even), how long the longest waits are in turns (1 is everybody once), what the
// server ran for each lock, how long a hand-off takes, from the release being sent to the next holder running, in round
// trips of a script that is sent meanwhile, and how many locks are granted for each that the best polling strategy
// gets. All are medians over the iterations.
func BenchmarkContended(b *testing.B) {
	polling := map[string]redislock.RetryStrategy{
		"linear 200µs": redislock.LinearBackoff(200 * time.Microsecond),
		"linear 1ms":   redislock.LinearBackoff(time.Millisecond),
		"linear 5ms":   redislock.LinearBackoff(5 * time.Millisecond),
		"exponential":  redislock.ExponentialBackoff(time.Millisecond, 100*time.Millisecond),
	}
	lasting := spec.Briefly(2 * time.Second)
	for _, contenders := range []int{8, 64} {
		b.Run(fmt.Sprintf("contenders=%d", contenders), func(b *testing.B) {
			client := spec.BenchClient(b)
			var pools []*redislock.Client
			for range 4 {
				pool := redis.NewClient(&redis.Options{Addr: client.Options().Addr, PoolSize: 64})
				b.Cleanup(func() { _ = pool.Close() })
				pools = append(pools, redislock.New(pool))
			}
			values, polled := map[string][]float64{}, map[string][]float64{}
			note := func(name string, value float64) { values[name] = append(values[name], value) }
			for b.Loop() {
				before := commandsRun(b, client)
				ctx, cancel := context.WithCancel(b.Context())
				tripping := make(chan []time.Duration, 1)
				go func() { tripping <- roundTrips(ctx, client) }()
				queued := contend(pools, contenders, &redislock.Options{Queue: true}, lasting)
				cancel()
				trips := <-tripping
				trip := trips[len(trips)/2]
				note("commands/lock", float64(commandsRun(b, client)-before-len(trips))/float64(queued.locks))
				note("locks/s", float64(queued.locks)/lasting.Seconds())
				note("jain", queued.jain)
				note("longest-wait/turns", queued.longest)
				note("hand-off/trips", float64(queued.handOff)/float64(trip))
				note("trip-µs", float64(trip)/1000)
				for name, strategy := range polling {
					c := contend(pools, contenders, &redislock.Options{RetryStrategy: strategy}, lasting)
					rate := float64(c.locks) / lasting.Seconds()
					polled[name] = append(polled[name], rate)
					b.Logf("%s: %.0f locks/s, Jain's index %.2f, longest wait %.1f turns", name, rate, c.jain, c.longest)
				}
			}
			median := func(all []float64) float64 {
				slices.Sort(all)
				return all[len(all)/2]
			}
			best := 0.0
			for _, all := range polled {
				best = max(best, median(all))
			}
			note("locks/best-polling", median(values["locks/s"])/best)
			b.ReportMetric(0, "ns/op")
			for name, all := range values {
				b.ReportMetric(median(all), name)
			}
			for _, pool := range pools {
				_ = pool.Close()
			}
		})
	}
}

// contention is what one round of contending came to.
type contention struct {
	locks   int
	jain    float64
	longest float64       // the 99.9th percentile of the waits, in median turns of every contender once
	handOff time.Duration // median
}

// contend lets contenders take and release one key for d.
func contend(pools []*redislock.Client, contenders int, opt *redislock.Options, d time.Duration) contention {
	var mu sync.Mutex // protects what follows
	var waits, turns, handOffs []time.Duration
	won := make([]float64, contenders)
	var granted, released time.Time // last
	ctx, cancel := context.WithTimeout(context.Background(), d+time.Minute)
	defer cancel()
	end := time.Now().Add(d)
	var wait sync.WaitGroup
	for i := range contenders {
		wait.Go(func() {
			for began := time.Now(); began.Before(end); began = time.Now() {
				lock, err := pools[i%len(pools)].Obtain(ctx, "contended", 10*time.Second, opt)
				if err != nil {
					panic(err)
				}
				now := time.Now()
				mu.Lock()
				if now.Before(end) {
					won[i]++
					waits = append(waits, now.Sub(began))
					if !released.IsZero() {
						handOffs = append(handOffs, now.Sub(released))
						turns = append(turns, now.Sub(granted))
					}
				}
				granted = now
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				released = time.Now()
				mu.Unlock()
				_ = lock.Release(ctx)
			}
		})
	}
	wait.Wait()
	var sum, squares float64
	for _, n := range won {
		sum += n
		squares += n * n
	}
	slices.Sort(waits)
	slices.Sort(turns)
	slices.Sort(handOffs)
	longest := waits[min(len(waits)-1, len(waits)*999/1000)]
	return contention{
		locks:   len(waits),
		jain:    sum * sum / (float64(contenders) * squares),
		longest: float64(longest) / (float64(contenders) * float64(turns[len(turns)/2])),
		handOff: handOffs[len(handOffs)/2],
	}
}

// roundTrips sends the least script there is every few milliseconds until ctx ends, and returns the times in their
// order of length.
func roundTrips(ctx context.Context, client *redis.Client) []time.Duration {
	least := redis.NewScript("return 1")
	var trips []time.Duration
	for ctx.Err() == nil {
		sent := time.Now()
		if least.Run(context.WithoutCancel(ctx), client, []string{"uncontended"}).Err() == nil {
			trips = append(trips, time.Since(sent))
		}
		time.Sleep(5 * time.Millisecond)
	}
	slices.Sort(trips)
	return trips
}

// commandsRun returns how many scripts and messages the server has run so far, and what else clients sent to it.
func commandsRun(b *testing.B, client *redis.Client) int {
	stats := client.Info(context.Background(), "commandstats").Val()
	if stats == "" {
		return 0 // miniredis
	}
	total := 0
	for line := range strings.SplitSeq(stats, "\r\n") {
		for _, name := range []string{"evalsha", "eval", "publish", "subscribe", "ping"} {
			if rest, found := strings.CutPrefix(line, "cmdstat_"+name+":calls="); found {
				calls, _, _ := strings.Cut(rest, ",")
				n, err := strconv.Atoi(calls)
				if err != nil {
					b.Fatal(err)
				}
				total += n
			}
		}
	}
	return total
}

// BenchmarkWaiting keeps a thousand waiters in line behind one holder, for 5 s an iteration, and reports what their
// signs of life cost the server, in hundredths of a core, and how many goroutines and subscriptions they take.
func BenchmarkWaiting(b *testing.B) {
	const waiting = 1000
	client := spec.BenchClient(b)
	locks := redislock.New(client)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	held, err := locks.Obtain(ctx, "contended", time.Hour, nil)
	if err != nil {
		b.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	var wait sync.WaitGroup
	for range waiting {
		wait.Go(func() {
			if lock, err := locks.Obtain(ctx, "contended", time.Hour, &redislock.Options{Queue: true}); err == nil {
				_ = lock.Release(ctx)
			}
		})
	}
	for statuses, _ := locks.Inspect(ctx, "contended"); statuses[0].Waiters < waiting; {
		time.Sleep(10 * time.Millisecond)
		if statuses, err = locks.Inspect(ctx, "contended"); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(spec.Briefly(2 * time.Second)) // their first tries spread out
	most, before, began := 0, serverCPU(client), time.Now()
	for b.Loop() {
		for end := time.Now().Add(spec.Briefly(5 * time.Second)); time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
			most = max(most, runtime.NumGoroutine())
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*float64(serverCPU(client)-before)/float64(time.Since(began)), "server-%")
	b.ReportMetric(float64(most-goroutines-waiting), "goroutines")
	b.ReportMetric(float64(len(client.PubSubChannels(ctx, "redislock:inbox:*").Val())), "subscriptions")
	began = time.Now()
	_ = held.Release(ctx)
	wait.Wait()
	b.ReportMetric(float64(time.Since(began).Microseconds())/waiting, "drain-µs/lock")
	_ = locks.Close()
}

// serverCPU returns the time that the server has run on a processor; 0 on miniredis.
func serverCPU(client *redis.Client) time.Duration {
	var total time.Duration
	for line := range strings.SplitSeq(client.Info(context.Background(), "cpu").Val(), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, _ := strconv.ParseFloat(value, 64)
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}
