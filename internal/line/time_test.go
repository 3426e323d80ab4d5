package line_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Its session shows signs of life for a waiter, and no more of them than it needs to. The waiter tries as a net only.
func TestQueueSignsOfLife(t *testing.T) {
	spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, client *redis.Client, _ *spec.MemoryServer) {
		sent, beats := spec.CountCalls(client), spec.CountBeats(client)
		held, err := locks.Obtain(t.Context(), "a", time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *redislock.Lock)
		go func() {
			lock, _ := locks.Obtain(t.Context(), "a", time.Hour, &redislock.Options{Queue: true})
			granted <- lock
		}()
		synctest.Wait()
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			statuses, err := locks.Inspect(t.Context(), "a")
			if err != nil || statuses[0].Waiters != 1 {
				t.Fatalf("%+v, %v: a waiter is always live", statuses, err)
			}
		}
		if n := beats.Count(); n < 60 || n > 70 {
			t.Errorf("%d beats in a minute, want one in 875 ms to 1 s", n)
		}
		if tries := sent.Count() - 601; tries < 2 || tries > 3 {
			t.Errorf("%d tries in a minute, want one in 22 to 30 s, after the first", tries)
		}
		released := time.Now()
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		lock := <-granted
		if late := time.Since(released); lock == nil || late > time.Millisecond {
			t.Errorf("granted %v after %v", lock, late)
		}
	})
}

// A lost reply costs a waiter a second, and never its turn, however many were lost before it in a long wait.
func TestQueueLosesRepliesNowAndThen(t *testing.T) {
	t.Parallel()
	spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, _ *redis.Client, server *spec.MemoryServer) {
		if _, err := locks.Obtain(t.Context(), "a", 10*time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ctx, "a", time.Hour, &redislock.Options{Queue: true})
			over <- err
		}()
		for lost := range 6 {
			time.Sleep(3 * time.Minute)
			silence := server.Add(faultproxy.Rule{Action: faultproxy.SwallowReply()})
			time.Sleep(time.Second)
			silence.Remove()
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				statuses, err := locks.Inspect(t.Context(), "a")
				if err != nil || statuses[0].Waiters != 1 {
					t.Fatalf("after %d lost replies: %+v, %v: the waiter counts as dead", lost+1, statuses, err)
				}
			}
		}
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// The first in line tries to the millisecond when the ttl of a crashed holder ends, whatever that is, and the next ones
// when his does.
func TestQueueBehindCrashedHolders(t *testing.T) {
	spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, _ *redis.Client, _ *spec.MemoryServer) {
		type grant struct {
			position int
			at       time.Time
		}
		ttls := []time.Duration{5 * time.Second, 10 * time.Millisecond, 999 * time.Millisecond, time.Second, 1500 * time.Millisecond}
		began := time.Now()
		if _, err := locks.Obtain(t.Context(), "a", ttls[0], nil); err != nil {
			t.Fatal(err)
		}
		grants := make(chan grant)
		for position, ttl := range ttls[1:] {
			go func() {
				if _, err := locks.Obtain(t.Context(), "a", ttl, &redislock.Options{Queue: true}); err != nil {
					t.Error(err)
				}
				grants <- grant{position, time.Now()} // and never released
			}()
			time.Sleep(10 * time.Millisecond)
		}
		free := began
		for position := range ttls[1:] {
			got := <-grants
			free = free.Add(ttls[position])
			if late := got.at.Sub(free); got.position != position || late < 0 || late > 50*time.Millisecond {
				t.Errorf("position %d was granted %v after the ttl, as number %d", got.position, late, position)
			}
			free = got.at
		}
	})
}

// The subscription outlives the last waiter by ten seconds, and serves those who come in between.
func TestQueueSubscription(t *testing.T) {
	spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, client *redis.Client, _ *spec.MemoryServer) {
		subscriptions := func() int {
			synctest.Wait()
			return len(client.PubSubChannels(t.Context(), "*").Val())
		}
		wait := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := locks.Obtain(ctx, "a", time.Hour, &redislock.Options{Queue: true}); err == nil {
				t.Error("granted")
			}
		}
		if _, err := locks.Obtain(t.Context(), "a", time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		wait()
		time.Sleep(5 * time.Second)
		wait()
		time.Sleep(9900 * time.Millisecond)
		if n := subscriptions(); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		time.Sleep(200 * time.Millisecond)
		if n := subscriptions(); n != 0 {
			t.Errorf("%d subscriptions", n)
		}
		wait()
		if n := subscriptions(); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
	})
}

// A crashed waiter is passed over and no longer counted 3 s after the last beat of its session, in all of its lines. What is left of it
// delays nobody, and ends with the lines, 3 s after the last waiter.
func TestQueueCrashedWaiter(t *testing.T) {
	spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, client *redis.Client, _ *spec.MemoryServer) {
		keys := make([]string, 30)
		for i := range keys {
			keys[i] = "key" + strconv.Itoa(i)
		}
		held, err := locks.ObtainMulti(t.Context(), keys, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys { // by a process that has crashed
			const life = 3 // seconds
			now := time.Now()
			deadline := now.Add(life * time.Second).UnixMilli()
			entry := []redis.Z{
				{Score: float64(now.UnixMicro()), Member: "crashed/1 30 3600000 0 token"},
				{Score: -float64(deadline*4096 + 2*life), Member: "~crashed"},
			}
			if err := client.ZAdd(t.Context(), spec.LineKey(key), entry...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		granted := make(chan *redislock.Lock)
		go func() { // ends when granted
			lock, err := locks.ObtainMulti(t.Context(), keys, time.Hour, &redislock.Options{Queue: true})
			if err != nil {
				t.Error(err)
			}
			granted <- lock
		}()
		synctest.Wait()
		expect := func(waiters int) {
			t.Helper()
			statuses, err := locks.Inspect(t.Context(), keys...)
			if err != nil {
				t.Fatal(err)
			}
			for _, status := range statuses {
				if status.Waiters != waiters {
					t.Errorf("%q has %d waiters, want %d", status.Key, status.Waiters, waiters)
				}
			}
		}
		expect(2)
		time.Sleep(3*time.Second + time.Millisecond) // a deadline is in whole milliseconds
		expect(1)
		released := time.Now()
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		lock := <-granted
		if late := time.Since(released); late != 0 {
			t.Errorf("granted after %v, want at once", late)
		}
		time.Sleep(3*time.Second + time.Millisecond)
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if left := client.Keys(t.Context(), "*").Val(); len(left) > 0 {
			t.Errorf("%q are left", left)
		}
	})
}
