package redislockotel_test

import (
	"context"
	"strings"
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
