package redislockotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/redislockotel"
)

// byPrefix names a lock by what its first key begins with.
func byPrefix(keys []string) string {
	prefix, _, _ := strings.Cut(keys[0], ":")
	return prefix
}

// watched is a Client on an in-memory Redis whose metrics a reader collects.
type watched struct {
	t      *testing.T
	server *miniredis.Miniredis
	locks  *redislock.Client
	tracer *redislock.Tracer
	reader *sdkmetric.ManualReader
}

func watch(t *testing.T, opts ...redislockotel.Option) *watched {
	t.Helper()
	w := &watched{t: t, server: miniredis.RunT(t), reader: sdkmetric.NewManualReader()}
	w.server.ClockTTL(true)
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))
	t.Cleanup(func() { _ = meters.Shutdown(context.Background()) })
	var err error
	w.tracer, err = redislockotel.New(append([]redislockotel.Option{redislockotel.WithMeterProvider(meters)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: w.server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	w.locks = redislock.New(client, redislock.WithTracer(w.tracer))
	t.Cleanup(func() { _ = w.locks.Close() })
	return w
}

func (w *watched) obtain(key string, ttl time.Duration) *redislock.Lock {
	w.t.Helper()
	lock, err := w.locks.Obtain(w.t.Context(), key, ttl, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return lock
}

// metrics returns all metrics by name.
func (w *watched) metrics() map[string]metricdata.Metrics {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(w.t.Context(), &all); err != nil {
		w.t.Fatal(err)
	}
	found := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// points returns the data points of a metric by their attributes, as key=value, sorted: the value, and for a histogram
// the count.
func (w *watched) points(name string) map[string]int64 {
	w.t.Helper()
	points := map[string]int64{}
	switch data := w.metrics()[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			points[list(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			points[list(p.Attributes)] = int64(p.Count)
		}
	case nil:
	default:
		w.t.Fatalf("%s is a %T", name, data)
	}
	return points
}

func list(set attribute.Set) string {
	var parts []string
	for _, kv := range set.ToSlice() {
		parts = append(parts, fmt.Sprintf("%s=%s", kv.Key, kv.Value.AsString()))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// expect waits until a metric has just these points.
func (w *watched) expect(name string, want map[string]int64) {
	w.t.Helper()
	var got map[string]int64
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if got = w.points(name); maps.Equal(got, want) {
			return
		}
	}
	w.t.Errorf("%s: %v, want %v", name, got, want)
}

func TestObtainDuration(t *testing.T) {
	w := watch(t)
	ctx := t.Context()
	w.obtain("a", time.Minute)
	if _, err := w.locks.Obtain(ctx, "a", time.Minute, nil); err != redislock.ErrNotObtained {
		t.Fatal(err)
	}
	polling := &redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}
	if _, err := w.locks.Obtain(ctx, "a", 20*time.Millisecond, polling); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err) // the deadline is the library's own
	}
	limited, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := w.locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	w.server.SetError("ERR broken")
	if _, err := w.locks.Obtain(ctx, "b", time.Minute, nil); err == nil || errors.Is(err, redislock.ErrNotObtained) {
		t.Fatal(err)
	}
	w.expect("redislock.obtain.duration", map[string]int64{
		"outcome=obtained": 1, "outcome=refused": 2, "outcome=canceled": 1, "outcome=error": 1,
	})
	m := w.metrics()["redislock.obtain.duration"]
	if m.Unit != "s" {
		t.Errorf("unit %q", m.Unit)
	}
	for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
		if least := .02; list(p.Attributes) == "outcome=canceled" && (p.Sum < least || p.Sum > 2) {
			t.Errorf("the one that waited took %v s", p.Sum)
		}
		if p.Bounds[0] > .001 || p.Bounds[len(p.Bounds)-1] < 60 {
			t.Errorf("bounds %v", p.Bounds)
		}
	}
}

func TestHolds(t *testing.T) {
	w := watch(t)
	ctx := t.Context()
	w.expect("redislock.held", map[string]int64{})

	released, lost := w.obtain("a", time.Minute), w.obtain("b", time.Minute)
	unnoticed, kept := w.obtain("c", time.Second), w.obtain("d", 3*time.Second)
	w.expect("redislock.held", map[string]int64{"": 4})
	w.expect("redislock.held", map[string]int64{"": 3}) // nobody does anything about c
	if err := released.Release(ctx); err != nil {
		t.Fatal(err)
	}
	w.server.Del("b")
	if err := lost.Release(ctx); err != redislock.ErrLockNotHeld {
		t.Fatal(err)
	}
	w.expect("redislock.held", map[string]int64{"": 0}) // d has expired as well, since it was not kept
	time.Sleep(200 * time.Millisecond)                  // the keys last a little longer than the validity
	_ = unnoticed.Release(ctx)
	_ = kept.Release(ctx)

	kept = w.obtain("e", 1500*time.Millisecond)
	held, stop := kept.KeepAlive(ctx)
	defer stop()
	w.expect("redislock.renewal.margin", map[string]int64{"": 1})
	margin := w.metrics()["redislock.renewal.margin"].Data.(metricdata.Histogram[float64]).DataPoints[0]
	if margin.Sum <= 0 || margin.Sum > .7 {
		t.Errorf("margin %v", margin.Sum)
	}
	w.expect("redislock.held", map[string]int64{"": 1})
	w.server.SetError("MASTERDOWN no master")
	<-held.Done()
	w.expect("redislock.held", map[string]int64{"": 0})
	w.expect("redislock.lost", map[string]int64{"cause=gone": 3, "cause=lapsed": 1, "cause=taken": 0})
	w.expect("redislock.hold.duration", map[string]int64{"end=released": 1, "end=lost": 3, "end=lapsed": 1})
}

func TestHeldIsOfLocksNotOfKeys(t *testing.T) {
	w := watch(t)
	expired := w.obtain("a", 500*time.Millisecond)
	w.expect("redislock.held", map[string]int64{"": 0})
	time.Sleep(50 * time.Millisecond) // the key lasts a little longer than the validity
	next := w.obtain("a", time.Minute)
	if err := expired.Release(t.Context()); err != redislock.ErrLockNotHeld {
		t.Fatal(err)
	}
	w.expect("redislock.held", map[string]int64{"": 1})
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect("redislock.held", map[string]int64{"": 0})
}

func TestLateEventOfARenewal(t *testing.T) {
	w := watch(t)
	keys := []string{"a"}
	ctx := w.tracer.ObtainStart(t.Context(), redislock.ObtainStart{Keys: keys})
	w.tracer.ObtainEnd(ctx, redislock.ObtainEnd{Keys: keys, Until: time.Now().Add(time.Minute)})
	w.tracer.Released(ctx, redislock.Released{Keys: keys, Held: time.Second})
	w.tracer.Refreshed(ctx, redislock.Refreshed{Keys: keys, Renewal: true, TTL: time.Minute, Left: 30 * time.Second})
	w.expect("redislock.held", map[string]int64{"": 0})
}

// Prometheus sees an increase only from one value to the next, so a series that begins with 1 hides the first loss.
func TestSeriesBeginWithZero(t *testing.T) {
	w := watch(t, redislockotel.WithLockName(byPrefix))
	w.obtain("order:1", time.Minute)
	none := map[string]int64{
		"cause=gone redislock.lock=order": 0, "cause=lapsed redislock.lock=order": 0, "cause=taken redislock.lock=order": 0,
	}
	w.expect("redislock.lost", none)
	w.expect("redislock.restored", map[string]int64{"redislock.lock=order": 0})
	w.obtain("order:2", time.Minute)
	w.expect("redislock.lost", none)
}

func TestGuard(t *testing.T) {
	w := watch(t, redislockotel.WithLockName(byPrefix))
	ctx := t.Context()
	for range 2 {
		w.tracer.GuardClosed(ctx, redislock.GuardClosed{Server: "a:6379", For: time.Minute})
	}
	w.tracer.GuardClosed(ctx, redislock.GuardClosed{Server: "b:6379", For: time.Minute})
	w.tracer.Restored(ctx, redislock.Restored{Keys: []string{"order:1", "order:2"}, Back: []string{"order:2"}})
	w.expect("redislock.guard.closures", map[string]int64{"server=a:6379": 2, "server=b:6379": 1})
	w.expect("redislock.restored", map[string]int64{"redislock.lock=order": 1})
}

func TestWaiting(t *testing.T) {
	w := watch(t)
	lock := w.obtain("a", time.Minute)
	done := make(chan error)
	go func() {
		other, err := w.locks.Obtain(context.Background(), "a", time.Minute, &redislock.Options{Queue: true})
		if err == nil {
			err = other.Release(context.Background())
		}
		done <- err
	}()
	w.expect("redislock.waiting", map[string]int64{"": 1})
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.expect("redislock.waiting", map[string]int64{"": 0})
}

func TestCleanups(t *testing.T) {
	w := watch(t)
	w.obtain("a", time.Minute)
	limited, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, _ = w.locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
	w.tracer.CleanedUp(t.Context(), redislock.CleanedUp{Keys: []string{"a"}, Why: redislock.WhyRelease, Err: errors.New("down")})
	w.tracer.CleanedUp(t.Context(), redislock.CleanedUp{Keys: []string{"a"}, Why: redislock.WhyRelease, Dropped: true})
	w.expect("redislock.cleanups", map[string]int64{
		"result=done why=place in line": 1, "result=failed why=abandoned release": 1, "result=dropped why=abandoned release": 1,
	})
}

// everything makes a Client with all metrics.
func everything(t *testing.T, opts ...redislockotel.Option) *watched {
	t.Helper()
	w := watch(t, opts...)
	ctx := t.Context()
	await := func(isThere func() bool) {
		for deadline := time.Now().Add(5 * time.Second); !isThere() && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	lock := w.obtain("order:secret", time.Second)
	_, stop := lock.KeepAlive(ctx)
	defer stop()
	await(func() bool { _, renewed := w.metrics()["redislock.renewal.margin"]; return renewed })
	limited, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
	defer cancel()
	_, _ = w.locks.Obtain(limited, "order:secret", time.Minute, &redislock.Options{Queue: true, Token: "secret"})
	w.server.Del("order:secret")
	_ = lock.Release(ctx)
	w.tracer.GuardClosed(ctx, redislock.GuardClosed{Server: "a:6379", For: time.Minute})
	w.tracer.Restored(ctx, redislock.Restored{Keys: []string{"order:secret"}, Back: []string{"order:secret"}})
	await(func() bool { return len(w.metrics()) == 9 })
	return w
}

func TestAttributes(t *testing.T) {
	for name, want := range map[string]string{"": "", "order": "order"} {
		var opts []redislockotel.Option
		if name != "" {
			opts = append(opts, redislockotel.WithLockName(byPrefix))
		}
		w := everything(t, opts...)
		if len(w.metrics()) != 9 {
			t.Errorf("%d metrics, want 9: %v", len(w.metrics()), slices.Collect(maps.Keys(w.metrics())))
		}
		for metric := range w.metrics() {
			for attrs := range w.points(metric) {
				if strings.Contains(attrs, "secret") {
					t.Errorf("%s names a key or a token: %s", metric, attrs)
				}
				named := want != "" && metric != "redislock.guard.closures" // which counts servers
				if has := strings.Contains(attrs, "redislock.lock=order"); has != named {
					t.Errorf("%s: %q, want the name %q", metric, attrs, want)
				}
			}
		}
	}
}
