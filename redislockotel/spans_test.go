package redislockotel_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/redislockotel"
)

// watchSpans is watch with an exporter that keeps spans in memory.
func watchSpans(t *testing.T, opts ...redislockotel.Option) (*watched, *sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { _ = tracers.Shutdown(context.Background()) })
	return watch(t, append(opts, redislockotel.WithTracerProvider(tracers))...), tracers, exporter
}

func attributes(span tracetest.SpanStub) map[attribute.Key]any {
	found := map[attribute.Key]any{}
	for _, kv := range span.Attributes {
		found[kv.Key] = kv.Value.AsInterface()
	}
	return found
}

func TestSpans(t *testing.T) {
	w, tracers, exporter := watchSpans(t, redislockotel.WithLockName(byPrefix))
	ctx, parent := tracers.Tracer("test").Start(t.Context(), "parent")
	lock, err := w.locks.ObtainMulti(ctx, []string{"order:1", "order:2"}, time.Minute, &redislock.Options{FenceKey: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(ctx); err != nil {
		t.Fatal(err)
	}
	spans := exporter.GetSpans()
	if len(spans) != 2 || spans[0].Name != "redislock.obtain" || spans[1].Name != "redislock.release" {
		t.Fatalf("%v", spans)
	}
	for _, span := range spans {
		if span.Parent.SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("%s is no child of the caller's span", span.Name)
		}
		if span.EndTime.Sub(span.StartTime) <= 0 || span.Status.Code != codes.Unset || len(span.Events) > 0 {
			t.Errorf("%+v", span)
		}
		attrs := attributes(span)
		if attrs["redislock.keys.count"] != int64(2) || attrs["redislock.lock"] != "order" || attrs["redislock.keys"] != nil {
			t.Errorf("%s: %v", span.Name, attrs)
		}
	}
	obtain := attributes(spans[0])
	for key, want := range map[attribute.Key]any{
		"redislock.outcome": "obtained", "redislock.tries": int64(1), "redislock.resends": int64(0), "redislock.ttl": 60.,
		"redislock.queue": false, "redislock.fenced": true, "redislock.fence": lock.FenceToken(),
	} {
		if obtain[key] != want {
			t.Errorf("%s: %v, want %v", key, obtain[key], want)
		}
	}
	if held, _ := attributes(spans[1])["redislock.held"].(float64); held <= 0 || held > 10 {
		t.Errorf("held for %v s", held)
	}
}

func TestSpanOfAnExplainedRefusal(t *testing.T) {
	for _, keys := range []bool{false, true} {
		var opts []redislockotel.Option
		if keys {
			opts = append(opts, redislockotel.WithKeysOnSpans())
		}
		w, _, exporter := watchSpans(t, opts...)
		lock, err := w.locks.Obtain(t.Context(), "my secret", time.Minute, &redislock.Options{Metadata: "host 7"})
		if err != nil {
			t.Fatal(err)
		}
		exporter.Reset()
		_, _ = w.locks.Obtain(t.Context(), "my secret", time.Minute, &redislock.Options{Explain: true})
		spans := exporter.GetSpans()
		if len(spans) != 1 {
			t.Fatalf("%d spans", len(spans))
		}
		found := attributes(spans[0])
		for key, want := range map[attribute.Key]any{
			"redislock.outcome": "refused", "redislock.holder.token": lock.Token()[:6] + "…",
			"redislock.holder.metadata": "host 7", "redislock.ahead": int64(0),
		} {
			if found[key] != want {
				t.Errorf("%s: %v, want %v", key, found[key], want)
			}
		}
		if ttl, _ := found["redislock.holder.ttl"].(float64); ttl < 50 || ttl > 60 {
			t.Errorf("ttl %v", ttl)
		}
		if key, shown := found["redislock.holder.key"]; shown != keys || keys && key != "my secret" {
			t.Errorf("key %v, with keys on spans: %v", key, keys)
		}
	}
}

func TestSpanOfASharedKey(t *testing.T) {
	w, _, exporter := watchSpans(t)
	shared := &redislock.Options{Shared: []string{"catalog"}}
	for range 2 {
		if _, err := w.locks.Obtain(t.Context(), "catalog", time.Minute, shared); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = w.locks.Obtain(t.Context(), "catalog", time.Minute, &redislock.Options{Explain: true})
	spans := exporter.GetSpans()
	if got := attributes(spans[0])["redislock.shared"]; got != int64(1) {
		t.Errorf("shared: %v", got)
	}
	refused := attributes(spans[2])
	if refused["redislock.shared"] != nil || refused["redislock.holders"] != int64(2) {
		t.Errorf("refused: %v", refused)
	}
}

// impatient gives up its call by a panic.
type impatient struct{}

func (impatient) NextBackoff() time.Duration { panic("impatient") }

// However calls end: no span stays open, nobody waits, and nothing is held.
func TestNothingDrifts(t *testing.T) {
	w, _, exporter := watchSpans(t)
	strategies := []*redislock.Options{
		nil,
		{Queue: true},
		{Queue: true, Explain: true},
		{RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond)},
		{RetryStrategy: impatient{}},
		{Token: "me"},
	}
	calls := int64(0)
	var obtained atomic.Int64
	if err := w.obtain("warm", time.Minute).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	exporter.Reset()
	for calls < 150 || obtained.Load() < 10 && calls < 3000 { // on a busy machine, most calls come to nothing
		first := int(calls)
		calls += 30 // more at a time can be too many for a slow server in memory
		var wait sync.WaitGroup
		for i := first; i < int(calls); i++ {
			wait.Go(func() {
				defer func() { _ = recover() }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%50)*20*time.Millisecond)
				defer cancel()
				keys := []string{string(rune('a' + i%3)), string(rune('b' + i%3))}
				lock, err := w.locks.ObtainMulti(ctx, keys, time.Duration(20+i%200)*time.Millisecond, strategies[i%len(strategies)])
				if err != nil {
					return
				}
				obtained.Add(1)
				kept, stop := lock.KeepAlive(t.Context())
				defer stop()
				time.Sleep(time.Duration(i%20) * time.Millisecond)
				switch i % 4 {
				case 0:
					w.server.Del(keys[0])
					<-kept.Done()
				case 1:
					_ = lock.Refresh(t.Context(), 50*time.Millisecond, nil)
				}
				_ = lock.Release(t.Context())
			})
		}
		wait.Wait()
	}
	w.expect("redislock.waiting", map[string]int64{"": 0})
	w.expect("redislock.held", map[string]int64{"": 0})
	ended := map[string]int64{}
	for _, span := range exporter.GetSpans() {
		ended[span.Name]++
	}
	if want := map[string]int64{"redislock.obtain": calls, "redislock.release": obtained.Load()}; !maps.Equal(ended, want) {
		t.Errorf("spans: %v, want %v", ended, want)
	}
	var holds int64
	for _, count := range w.points("redislock.hold.duration") {
		holds += count
	}
	// A Refresh that succeeds after a loss revives the hold, which then ends once more.
	if got := obtained.Load(); got < 10 || holds < got+1 || holds > got+1+calls/4 {
		t.Errorf("%d holds ended, of %d", holds, got+1)
	}
}

func TestSpansOfFailures(t *testing.T) {
	for _, keys := range []bool{false, true} {
		var opts []redislockotel.Option
		if keys {
			opts = append(opts, redislockotel.WithKeysOnSpans())
		}
		w, _, exporter := watchSpans(t, opts...)
		lock := w.obtain("my secret", time.Minute)
		if _, err := w.locks.Obtain(t.Context(), "my secret", time.Minute, nil); err != redislock.ErrNotObtained {
			t.Fatal(err)
		}
		w.server.SetError("ERR broken")
		_, _ = w.locks.Obtain(t.Context(), "my secret", time.Minute, nil)
		_ = lock.Release(t.Context())
		spans := exporter.GetSpans()
		if len(spans) != 4 {
			t.Fatalf("%d spans", len(spans))
		}
		if refused := spans[1]; refused.Status.Code != codes.Unset || attributes(refused)["redislock.outcome"] != "refused" {
			t.Errorf("%+v", refused)
		}
		for _, span := range spans[2:] {
			if span.Status.Code != codes.Error || attributes(span)["error.type"] == nil {
				t.Errorf("%+v", span)
			}
		}
		for _, span := range spans {
			shown := strings.Contains(span.Status.Description, "secret")
			for _, value := range attributes(span) {
				if names, ok := value.([]string); ok {
					shown = shown || names[0] == "my secret"
				}
			}
			if shown != keys {
				t.Errorf("%s with keys %v: %+v", span.Name, keys, span)
			}
		}
	}
}
