package foreign_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
	"github.com/redislock/redislock/internal/testing/spec"
	"github.com/redislock/redislock/internal/transport"
)

// goRedis returns an adapter of a client of a new server, and the client.
func goRedis(t *testing.T) (spec.Adapter, *redis.Client) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: startServer(t).Addr(), MaxRetries: -1, PoolSize: 100})
	t.Cleanup(func() { _ = client.Close() })
	return spec.Adapter{Client: client}, client
}

// A Refresh that nobody wants any more when the client has a connection is not sent, also if it is a pipeline of its own:
// otherwise it would shorten what the handle relies on.
func TestNobodyWantsAPipeline(t *testing.T) {
	transport.AlwaysTogether = true
	defer func() { transport.AlwaysTogether = false }()
	working, client := goRedis(t)
	var full atomic.Bool
	free := make(chan struct{})
	locks := redislock.New(redislock.Adapt(&wrong{Adapter: working, run: func(
		c spec.Adapter, ctx context.Context, scripts []*adapter.Script,
	) {
		if full.Load() {
			<-free // wait for a connection
		}
		c.Run(ctx, scripts)
	}}))
	lock, err := locks.Obtain(t.Context(), "a", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Refresh(t.Context(), time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := lock.Refresh(ctx, 300*time.Millisecond, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	full.Store(false)
	close(free)
	time.Sleep(200 * time.Millisecond)
	if left := client.PTTL(t.Context(), "a").Val(); left < 50*time.Second {
		t.Errorf("Until is in %v, and the key has %v", time.Until(lock.Until()), left)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// clustered is an adapter that says that it has a Cluster.
type clustered struct {
	spec.Adapter

	slots func(ctx context.Context) ([]adapter.SlotRange, error)
}

func (c *clustered) About() adapter.About { return adapter.About{Reach: adapter.Slots} }

func (c *clustered) Slots(ctx context.Context) ([]adapter.SlotRange, error) { return c.slots(ctx) }

// Nobody waits for the answer to which node has which slot, and no lock depends on it.
func TestSlotsThatAreNotKnown(t *testing.T) {
	for name, slots := range map[string]func(ctx context.Context) ([]adapter.SlotRange, error){
		"no answer": func(ctx context.Context) ([]adapter.SlotRange, error) { <-ctx.Done(); return nil, ctx.Err() },
		"an error":  func(context.Context) ([]adapter.SlotRange, error) { return nil, adapter.ReplyError("NOPERM") },
		"no slots":  func(context.Context) ([]adapter.SlotRange, error) { return nil, nil },
		"a panic":   func(context.Context) ([]adapter.SlotRange, error) { panic("in the adapter") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			working, _ := goRedis(t)
			locks := redislock.New(redislock.Adapt(&clustered{working, slots}))
			defer locks.Close()
			lock, err := locks.Obtain(t.Context(), "a", time.Second, nil)
			if err != nil {
				t.Fatal(err)
			}
			kept, stop := lock.KeepAlive(t.Context())
			defer stop()
			var wait sync.WaitGroup
			for i := range 10 {
				wait.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					if _, err := locks.Obtain(ctx, fmt.Sprint("key ", i), time.Minute, nil); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			select {
			case <-kept.Done():
				t.Error(context.Cause(kept))
			case <-time.After(3 * time.Second):
			}
		})
	}
}

func TestKeysOfSeveralSlots(t *testing.T) {
	working, client := goRedis(t)
	locks := redislock.New(redislock.Adapt(&clustered{working, func(context.Context) ([]adapter.SlotRange, error) {
		return []adapter.SlotRange{{First: 0, Last: 16383, Address: "here"}}, nil
	}}))
	defer locks.Close()
	_, err := locks.ObtainMulti(t.Context(), []string{"a", "b"}, time.Minute, nil)
	if err == nil || !strings.Contains(err.Error(), "AcrossSlots") {
		t.Error(err)
	}
	if left := client.Keys(t.Context(), "*").Val(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := locks.ObtainMulti(t.Context(), []string{"a", "b"}, time.Minute, &redislock.Options{AcrossSlots: true}); err != nil {
		t.Error(err)
	}
}

// greeting is an adapter that never learns whether its server stands alone.
type greeting struct{ spec.Adapter }

func (greeting) StandsAlone(context.Context) (bool, error) { select {} }

func TestNobodyWaitsForAGreeting(t *testing.T) {
	working, _ := goRedis(t)
	locks := redislock.New(redislock.Adapt(greeting{working}))
	if _, err := locks.Obtain(t.Context(), "a", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := locks.Obtain(ctx, fmt.Sprint("key ", i), time.Minute, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

// A release that fails in a way that may pass is sent again.
func TestARelease(t *testing.T) {
	for name, fail := range map[string]func(s *adapter.Script){
		"without Reply and Err": func(*adapter.Script) {},
		"that was refused when the client connected again": func(s *adapter.Script) {
			s.Err = adapter.ReplyError("WRONGPASS invalid username-password pair or user is disabled.")
		},
		"whose client gave up": func(s *adapter.Script) { s.Err = context.DeadlineExceeded },
		"that was not sent":    func(s *adapter.Script) { s.Err = fmt.Errorf("%w: no route", adapter.ErrNotSent) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			working, client := goRedis(t)
			var failing atomic.Bool
			locks := redislock.New(redislock.Adapt(&wrong{Adapter: working, run: func(
				c spec.Adapter, ctx context.Context, scripts []*adapter.Script,
			) {
				if !failing.Swap(false) {
					c.Run(ctx, scripts)
					return
				}
				for _, s := range scripts {
					if s.Err = s.Sent(); s.Err == nil {
						fail(s)
					}
				}
			}}))
			lock, err := locks.Obtain(t.Context(), "a", time.Hour, nil)
			if err != nil {
				t.Fatal(err)
			}
			failing.Store(true)
			if err := lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if left := client.Exists(t.Context(), "a").Val(); left > 0 {
				t.Error("the key is left behind")
			}
		})
	}
}
