package redislock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/redistest"
)

func TestSmokeContended(t *testing.T) {
	_, clients := smokeServers(t, 3)
	for _, n := range []int{8, 64} {
		for _, queue := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			var wait sync.WaitGroup
			counts := make([]int, n)
			var waits sync.Map
			_ = waits
			var longest time.Duration
			var mu sync.Mutex
			cs := make([]*redislock.Client, 4)
			for i := range cs {
				cs[i] = redislock.NewQuorum(clients)
			}
			before := map[int]string{}
			_ = before
			for i := range n {
				wait.Go(func() {
					c := cs[i%4]
					opt := &redislock.Options{Queue: queue}
					if !queue {
						opt.RetryStrategy = redislock.LinearBackoff(5 * time.Millisecond)
					}
					for {
						start := time.Now()
						l, err := c.Obtain(ctx, "k", 5*time.Second, opt)
						if err != nil {
							if ctx.Err() == nil {
								fmt.Println(err)
							}
							return
						}
						mu.Lock()
						longest = max(longest, time.Since(start))
						mu.Unlock()
						counts[i]++
						time.Sleep(time.Millisecond)
						if err := l.Release(context.Background()); err != nil {
							fmt.Println("release", err)
						}
					}
				})
			}
			wait.Wait()
			cancel()
			var sum, sq float64
			for _, k := range counts {
				sum += float64(k)
				sq += float64(k) * float64(k)
			}
			fmt.Printf("n=%d queue=%v: %.0f locks/s jain %.4f longest %v\n", n, queue, sum/3, sum*sum/sq/float64(n), longest)
			for _, c := range cs {
				c.Close()
			}
			time.Sleep(100 * time.Millisecond)
			for _, cl := range clients {
				fmt.Println(cl.(*redis.Client).Keys(context.Background(), "*").Val())
				info := cl.(*redis.Client).Info(context.Background(), "commandstats").Val()
				_ = info
			}
		}
	}
}

func TestSmokeSlots(t *testing.T) {
	cl, err := redistest.StartCluster(3, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	rc := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
	defer rc.Close()
	ctx := context.Background()
	c := redislock.New(rc)
	defer c.Close()
	_, err = c.ObtainMulti(ctx, []string{"a", "b", "c"}, 10*time.Second, nil)
	fmt.Println(err)
	l, err := c.ObtainMulti(ctx, []string{"a", "b", "c"}, 10*time.Second, &redislock.Options{AcrossSlots: true, FenceKey: "f"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(l.FenceToken(), l.Keys(), time.Until(l.Until()))
	_, err = c.ObtainMulti(ctx, []string{"b", "d"}, 10*time.Second, &redislock.Options{AcrossSlots: true, Explain: true})
	fmt.Println(err)
	fmt.Println(c.Inspect(ctx, "a", "b", "c", "d"))
	fmt.Println(l.TTL(ctx))
	kept, stop := l.KeepAlive(ctx)
	rc.Del(ctx, "b")
	fmt.Println(l.Refresh(ctx, time.Second, nil), kept.Err(), context.Cause(kept))
	stop()
	fmt.Println(l.Release(ctx))
	sets := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"c", "b", "a"}}
	for _, queue := range []bool{true, false} {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		var wait sync.WaitGroup
		counts := make([]int, 16)
		for i := range counts {
			wait.Go(func() {
				opt := &redislock.Options{Queue: queue, AcrossSlots: true}
				if !queue {
					opt.RetryStrategy = redislock.LinearBackoff(2 * time.Millisecond)
				}
				for {
					l, err := c.ObtainMulti(ctx, sets[i%4], 5*time.Second, opt)
					if err != nil {
						if ctx.Err() == nil {
							fmt.Println(err)
						}
						return
					}
					counts[i]++
					time.Sleep(time.Millisecond)
					if err := l.Release(context.Background()); err != nil {
						fmt.Println("release", err)
					}
				}
			})
		}
		wait.Wait()
		fmt.Println(queue, counts)
	}
}
