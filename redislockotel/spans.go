package redislockotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redislock/redislock"
)

// spans makes a span for each obtain and each release.
type spans struct {
	tracer trace.Tracer
	name   func(keys []string) string // returns "" for no name
	keys   bool                       // spans show keys
}

func (s *spans) tracerFuncs() *redislock.Tracer {
	return &redislock.Tracer{ObtainStart: s.obtainStart, ObtainEnd: s.obtainEnd, Released: s.released}
}

// spanKey is the key under which the ctx of a call holds its span. The innermost span of that ctx may be of another
// Tracer that is combined with this one.
type spanKey struct{ s *spans }

func (s *spans) obtainStart(ctx context.Context, e redislock.ObtainStart) context.Context {
	ctx, span := s.tracer.Start(ctx, "redislock.obtain", trace.WithAttributes(s.about(e.Keys)...))
	span.SetAttributes(
		attribute.Float64("redislock.ttl", e.TTL.Seconds()),
		attribute.Bool("redislock.queue", e.Queue),
		attribute.Bool("redislock.fenced", e.Fenced),
	)
	if shared := len(e.Shared) + len(e.Permits); shared > 0 {
		span.SetAttributes(attribute.Int("redislock.shared", shared))
	}
	return context.WithValue(ctx, spanKey{s}, span)
}

func (s *spans) obtainEnd(ctx context.Context, e redislock.ObtainEnd) {
	span, ok := ctx.Value(spanKey{s}).(trace.Span)
	if !ok {
		return
	}
	how := outcome(ctx, e.Err)
	span.SetAttributes(
		attribute.String("redislock.outcome", how),
		attribute.Int("redislock.tries", e.Tries),
		attribute.Int("redislock.resends", e.Resends),
	)
	if e.Fence != 0 {
		span.SetAttributes(attribute.Int64("redislock.fence", e.Fence))
	}
	var refused *redislock.RefusedError
	if errors.As(e.Err, &refused) && refused.Key != "" {
		span.SetAttributes(
			attribute.String("redislock.holder.token", short(refused.Token)),
			attribute.String("redislock.holder.metadata", refused.Metadata),
			attribute.Float64("redislock.holder.ttl", refused.TTL.Seconds()),
			attribute.Int("redislock.ahead", refused.Ahead),
		)
		if refused.Holders > 0 {
			span.SetAttributes(attribute.Int("redislock.holders", refused.Holders))
		}
		if s.keys {
			span.SetAttributes(attribute.String("redislock.holder.key", refused.Key))
		}
	}
	if how == "error" {
		s.fail(span, e.Err)
	}
	span.End()
}

func (s *spans) released(ctx context.Context, e redislock.Released) {
	now := time.Now()
	_, span := s.tracer.Start(ctx, "redislock.release", trace.WithTimestamp(now.Add(-e.Wait)),
		trace.WithAttributes(s.about(e.Keys)...))
	if e.Held > 0 {
		span.SetAttributes(attribute.Float64("redislock.held", e.Held.Seconds()))
	}
	if e.Err != nil {
		s.fail(span, e.Err)
	}
	span.End(trace.WithTimestamp(now))
}

// fail gives a span the status of an error. It adds the text of the error only if spans show keys, because the library's
// errors name keys.
func (s *spans) fail(span trace.Span, err error) {
	span.SetAttributes(attribute.String("error.type", errorType(err)))
	words := ""
	if s.keys {
		words = err.Error()
	}
	span.SetStatus(codes.Error, words)
}

// about returns the attributes that describe the keys of a lock.
func (s *spans) about(keys []string) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.Int("redislock.keys.count", len(keys))}
	if name := s.name(keys); name != "" {
		attrs = append(attrs, lockKey.String(name))
	}
	if s.keys {
		const most = 10
		attrs = append(attrs, attribute.StringSlice("redislock.keys", keys[:min(most, len(keys))]))
	}
	return attrs
}

// short returns the first characters of a token. Anyone who knows a whole token can release the lock.
func short(token string) string {
	const most = 6 // characters
	count := 0
	for at := range token {
		if count == most {
			return token[:at] + "…"
		}
		count++
	}
	return token
}
