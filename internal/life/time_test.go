package life_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// In each run, replies are lost for a random time from a random moment on. If they come again before the validity is
// over, the lock must be kept, and if they do not, its context must end before its key does.
func TestKeepAliveThroughSilence(t *testing.T) {
	t.Parallel()
	runs := spec.Schedules(200)
	kept, lost := 0, 0
	for run := range runs {
		random := rand.New(rand.NewPCG(uint64(run), 42))
		ttl := time.Second + time.Duration(random.Int64N(int64(20*time.Second)))
		calm := time.Duration(random.Int64N(int64(3 * ttl)))
		share := 1.3 * random.Float64() // of the validity that is left when the silence begins
		spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, client *redis.Client, server *spec.MemoryServer) {
			lock, err := locks.Obtain(t.Context(), "k", ttl, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := lock.KeepAlive(t.Context())
			defer stop()
			time.Sleep(calm)
			silence := server.Add(faultproxy.Rule{Action: faultproxy.SwallowReply()})
			until := lock.Until()
			left := time.Until(until)
			time.Sleep(time.Duration(share * float64(left)))
			silence.Remove()
			name := fmt.Sprintf("run %d: ttl %v, silent at %v for %.2f of %v", run, ttl, calm, share, left)
			switch {
			case share < 0.95: // what is left is enough for one more try
				time.Sleep(2 * ttl)
				if err := ctx.Err(); err != nil {
					t.Errorf("%s: lost: %v", name, context.Cause(ctx))
				}
				kept++
			case share > 1:
				if ctx.Err() == nil {
					t.Errorf("%s: still believes itself valid %v after Until", name, time.Since(until))
				}
				lost++
			}
			if err := context.Cause(ctx); err != nil && !errors.Is(err, redislock.ErrLapsed) {
				t.Errorf("%s: ended with %v", name, err)
			}
		})
	}
	t.Logf("kept %d, lost %d of %d", kept, lost, runs)
}

// The same for locks so short that little time is left for another try: one lost reply must not lose them.
func TestKeepAliveThroughSilenceWithShortTTLs(t *testing.T) {
	t.Parallel()
	for run := range spec.Schedules(200) {
		random := rand.New(rand.NewPCG(uint64(run), 44))
		ttl := 20*time.Millisecond + time.Duration(random.Int64N(int64(400*time.Millisecond)))
		if run < 10 {
			ttl = 50 * time.Millisecond
		}
		spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, _ *redis.Client, server *spec.MemoryServer) {
			lock, err := locks.Obtain(t.Context(), "k", ttl, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := lock.KeepAlive(t.Context())
			defer stop()
			for range 3 { // connections that hang go on hanging, for longer than all of this takes
				time.Sleep(time.Duration(random.Int64N(int64(3 * ttl))))
				silence := server.Add(faultproxy.Rule{Action: faultproxy.SwallowReply()})
				left := time.Until(lock.Until())
				time.Sleep(time.Duration(0.8 * random.Float64() * float64(left)))
				silence.Remove()
				time.Sleep(2 * ttl)
				if err := ctx.Err(); err != nil {
					t.Fatalf("run %d: ttl %v: lost: %v", run, ttl, context.Cause(ctx))
				}
			}
		})
	}
}

// When no reply comes any more, the context ends exactly at Until, and before the key does.
func TestKeepAliveEndsBeforeTheKey(t *testing.T) {
	t.Parallel()
	runs := spec.Schedules(200)
	for run := range runs {
		random := rand.New(rand.NewPCG(uint64(run), 43))
		ttl := 10*time.Millisecond + time.Duration(random.Int64N(int64(30*time.Second)))
		calm := time.Duration(random.Int64N(int64(3 * ttl)))
		spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, client *redis.Client, server *spec.MemoryServer) {
			lock, err := locks.Obtain(t.Context(), "k", ttl, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := lock.KeepAlive(t.Context())
			defer stop()
			time.Sleep(calm)
			server.Add(faultproxy.Rule{Action: faultproxy.SwallowReply()})
			<-ctx.Done()
			if late := time.Since(lock.Until()); late != 0 {
				t.Errorf("run %d: ttl %v: ended %v after Until", run, ttl, late)
			}
			if left := server.Memory.TTL("k"); left <= 0 {
				t.Errorf("run %d: ttl %v: the key was gone before the context", run, ttl)
			}
		})
	}
}

func TestKeepAliveSchedule(t *testing.T) {
	spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, client *redis.Client, _ *spec.MemoryServer) {
		lock, err := locks.Obtain(t.Context(), "k", 30*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		trips := &spec.PipelineCount{}
		client.AddHook(trips)
		ctx, stop := lock.KeepAlive(t.Context())
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		sent, _ := trips.Counts()
		if sent < 350 || sent > 430 { // every 9.9 s, or up to a twentieth of the ttl sooner
			t.Errorf("%d renewals in an hour at a ttl of 30 s, want some 364", sent)
		}
		stop()
		time.Sleep(time.Hour)
		if again, _ := trips.Counts(); again != sent {
			t.Errorf("%d renewals after the stop", again-sent)
		}
	})
}

// A very long ttl must not overflow anything on the way.
func TestKeepAliveForAges(t *testing.T) {
	spec.OnFakeTime(t, func(t *testing.T, locks *redislock.Client, _ *redis.Client, _ *spec.MemoryServer) {
		lock, err := locks.Obtain(t.Context(), "k", 200*365*24*time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := lock.KeepAlive(t.Context())
		defer stop()
		time.Sleep(24 * time.Hour)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
	})
}
