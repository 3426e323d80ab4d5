package redislockotel

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redislock/redislock"
)

const (
	lockKey    = attribute.Key("redislock.lock")
	outcomeKey = attribute.Key("outcome")
	endKey     = attribute.Key("end")
	causeKey   = attribute.Key("cause")
	whyKey     = attribute.Key("why")
	resultKey  = attribute.Key("result")
	serverKey  = attribute.Key("server")
)

// The bounds of the histograms. An obtain takes between a tenth of a millisecond, for a free key on a server nearby, and
// minutes in line.
var (
	obtainBounds = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBounds   = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	// A healthy renewal is confirmed when two thirds are left, or a little less.
	marginBounds = []float64{0, .05, .1, .2, .3, .4, .5, .6, .7}
)

// metrics feeds the instruments.
type metrics struct {
	name func(keys []string) string // returns "" for no name

	obtain   metric.Float64Histogram
	hold     metric.Float64Histogram
	margin   metric.Float64Histogram
	waiting  metric.Int64UpDownCounter
	lost     metric.Int64Counter
	cleanups metric.Int64Counter
	closures metric.Int64Counter
	restored metric.Int64Counter
	holds    *holds // behind redislock.held
}

func newMetrics(meter metric.Meter, name func(keys []string) string) (*metrics, error) {
	m := &metrics{name: name, holds: newHolds()}
	var errs [9]error
	m.obtain, errs[0] = meter.Float64Histogram("redislock.obtain.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls of Obtain took, including their waits."),
		metric.WithExplicitBucketBoundaries(obtainBounds...))
	m.hold, errs[1] = meter.Float64Histogram("redislock.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("How long locks were held."),
		metric.WithExplicitBucketBoundaries(holdBounds...))
	m.margin, errs[2] = meter.Float64Histogram("redislock.renewal.margin", metric.WithUnit("1"),
		metric.WithDescription("The share of the validity that was left when a renewal was confirmed."),
		metric.WithExplicitBucketBoundaries(marginBounds...))
	_, errs[3] = meter.Int64ObservableUpDownCounter("redislock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held and valid."),
		metric.WithInt64Callback(func(_ context.Context, observer metric.Int64Observer) error {
			for name, count := range m.holds.count(time.Now()) {
				observer.Observe(count, with(name))
			}
			return nil
		}))
	m.waiting, errs[4] = meter.Int64UpDownCounter("redislock.waiting", metric.WithUnit("{call}"),
		metric.WithDescription("Calls of Obtain that were refused and keep trying."))
	m.lost, errs[5] = meter.Int64Counter("redislock.lost", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that were lost."))
	m.cleanups, errs[6] = meter.Int64Counter("redislock.cleanups", metric.WithUnit("{cleanup}"),
		metric.WithDescription("Releases in the background."))
	m.closures, errs[7] = meter.Int64Counter("redislock.guard.closures", metric.WithUnit("{closure}"),
		metric.WithDescription("How often the guard of a server closed."))
	m.restored, errs[8] = meter.Int64Counter("redislock.restored", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks whose keys were put back at a server that had forgotten them."))
	return m, errors.Join(errs[:]...)
}

func (m *metrics) tracer() *redislock.Tracer {
	return &redislock.Tracer{
		ObtainStart: m.obtainStart,
		Refused:     m.refused,
		ObtainEnd:   m.obtainEnd,
		Refreshed:   m.refreshed,
		GuardClosed: m.guardClosed,
		Restored:    m.lockRestored,
		Lost:        m.lockLost,
		Released:    m.released,
		CleanedUp:   m.cleanedUp,
	}
}

// with returns attributes as an option, together with the name of the lock if it has one.
func with(name string, attrs ...attribute.KeyValue) metric.MeasurementOption {
	if name != "" {
		attrs = append(attrs, lockKey.String(name))
	}
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

// callKey is the key under which the ctx of a call holds its *call. Each Tracer has a key of its own, because a ctx may
// come from a call of another Client.
type callKey struct{ m *metrics }

// call is an obtain that has not ended.
type call struct {
	waiting atomic.Bool // the call was refused, and counts as waiting
}

func (m *metrics) obtainStart(ctx context.Context, _ redislock.ObtainStart) context.Context {
	return context.WithValue(ctx, callKey{m}, new(call))
}

func (m *metrics) refused(ctx context.Context, e redislock.Refused) {
	if c, ok := ctx.Value(callKey{m}).(*call); ok && !c.waiting.Swap(true) {
		m.waiting.Add(ctx, 1, with(m.name(e.Keys)))
	}
}

func (m *metrics) obtainEnd(ctx context.Context, e redislock.ObtainEnd) {
	name := m.name(e.Keys)
	if c, ok := ctx.Value(callKey{m}).(*call); ok && c.waiting.Swap(false) {
		m.waiting.Add(ctx, -1, with(name))
	}
	m.obtain.Record(ctx, e.Wait.Seconds(), with(name, outcomeKey.String(outcome(ctx, e.Err))))
	if e.Err == nil {
		m.held(ctx, e.Keys, name, e.Until)
	}
}

// held notes that a lock is held until the given time. The first lock of a name begins the series of losses and of locks
// that were put back with 0, because Prometheus sees no increase in the first value of a series.
func (m *metrics) held(ctx context.Context, keys []string, name string, until time.Time) {
	if !m.holds.set(keys, name, until) {
		return
	}
	for _, cause := range []redislock.LossCause{redislock.LossTaken, redislock.LossGone, redislock.LossLapsed} {
		m.lost.Add(ctx, 0, with(name, causeKey.String(string(cause))))
	}
	m.restored.Add(ctx, 0, with(name))
}

func (m *metrics) refreshed(ctx context.Context, e redislock.Refreshed) {
	if e.Err != nil {
		return
	}
	validity := e.TTL - e.TTL/100 - time.Millisecond
	name := m.name(e.Keys)
	until := time.Now().Add(validity)
	if !e.Renewal { // a Refresh may revive a lock that has expired or was lost
		m.held(ctx, e.Keys, name, until)
		return
	}
	m.holds.prolong(e.Keys, until)
	if validity > 0 {
		m.margin.Record(ctx, min(1, e.Left.Seconds()/validity.Seconds()), with(name))
	}
}

func (m *metrics) guardClosed(ctx context.Context, e redislock.GuardClosed) {
	m.closures.Add(ctx, 1, with("", serverKey.String(e.Server)))
}

func (m *metrics) lockRestored(ctx context.Context, e redislock.Restored) {
	m.restored.Add(ctx, 1, with(m.name(e.Keys)))
}

func (m *metrics) lockLost(ctx context.Context, e redislock.Lost) {
	name, end := m.name(e.Keys), "lost"
	if e.Cause == redislock.LossLapsed {
		end = "lapsed"
	}
	m.holds.remove(e.Keys)
	m.lost.Add(ctx, 1, with(name, causeKey.String(string(e.Cause))))
	m.hold.Record(ctx, e.Held.Seconds(), with(name, endKey.String(end)))
}

func (m *metrics) released(ctx context.Context, e redislock.Released) {
	m.holds.remove(e.Keys)
	if e.Held > 0 { // otherwise an earlier event has reported the end
		m.hold.Record(ctx, e.Held.Seconds(), with(m.name(e.Keys), endKey.String("released")))
	}
}

func (m *metrics) cleanedUp(ctx context.Context, e redislock.CleanedUp) {
	result := "done"
	switch {
	case e.Dropped:
		result = "dropped"
	case e.Err != nil:
		result = "failed"
	}
	m.cleanups.Add(ctx, 1, with(m.name(e.Keys), whyKey.String(e.Why), resultKey.String(result)))
}
