package spec

import (
	"context"
	"sync"

	"github.com/redislock/redislock"
)

// Recorder makes a Tracer that keeps all events.
type Recorder struct {
	mu     sync.Mutex // protects Events
	Events []any
}

func record[E any](r *Recorder) func(context.Context, E) {
	return func(_ context.Context, e E) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Events = append(r.Events, e)
	}
}

// Tracer returns the Tracer.
func (r *Recorder) Tracer() *redislock.Tracer {
	start := record[redislock.ObtainStart](r)
	return &redislock.Tracer{
		ObtainStart: func(ctx context.Context, e redislock.ObtainStart) context.Context {
			start(ctx, e)
			return ctx
		},
		Refused:     record[redislock.Refused](r),
		ObtainEnd:   record[redislock.ObtainEnd](r),
		Refreshed:   record[redislock.Refreshed](r),
		GuardClosed: record[redislock.GuardClosed](r),
		Restored:    record[redislock.Restored](r),
		Lost:        record[redislock.Lost](r),
		Released:    record[redislock.Released](r),
		CleanedUp:   record[redislock.CleanedUp](r),
	}
}

// EventsOf returns the events of one type, in order.
func EventsOf[E any](r *Recorder) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []E
	for _, event := range r.Events {
		if e, ok := event.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// Count returns the number of events.
func (r *Recorder) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Events)
}
