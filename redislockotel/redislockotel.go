// Package redislockotel feeds OpenTelemetry with what happens to the locks of a redislock Client.
//
//	tracer, err := redislockotel.New()
//	…
//	locks := redislock.New(client, redislock.WithTracer(tracer))
//
// # Metrics
//
//   - redislock.obtain.duration (histogram, s): how long calls of Obtain took, their waits included. outcome is obtained,
//     refused, canceled (ctx has ended, or the Client was closed) or error.
//   - redislock.hold.duration (histogram, s): how long locks were held. end is released, lost or lapsed.
//   - redislock.held (up-down counter): locks that are held and valid.
//   - redislock.waiting (up-down counter): calls of Obtain that were refused and go on trying.
//   - redislock.renewal.margin (histogram, a share from 0 to 1): how much of the validity was left when a renewal was
//     confirmed. Renewals begin when two thirds are left; near 0, locks are about to be lost.
//   - redislock.lost (counter): locks lost. cause is taken, gone or lapsed.
//   - redislock.cleanups (counter): releases in the background. result is done, failed or dropped, why is one of
//     redislock's Why constants.
//
// No metric carries keys or tokens. [WithLockName] adds redislock.lock, a name that the caller gives to a set of keys.
//
// # Spans
//
// redislock.obtain lasts from the first try to the end of the call; spans of the Redis client's own hooks are its
// children. redislock.release is a call of Release. The attributes tell the number of keys, the outcome, and how many
// tries and resends it took. If [redislock.Options.Explain] is set, they also tell the metadata of the holder that was
// in the way. Keys are named only with [WithKeysOnSpans], a token is cut to six characters.
package redislockotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redislock/redislock"
)

// scope names the instrumentation.
const scope = "github.com/redislock/redislock/redislockotel"

// Option is an option of [New].
type Option func(*options)

type options struct {
	meters     metric.MeterProvider
	tracers    trace.TracerProvider
	name       func(keys []string) string // nil for no names
	keysOnSpan bool
}

// WithMeterProvider takes the meter from provider. The default, also for nil, is the global one.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *options) { o.meters = provider }
}

// WithTracerProvider takes the tracer from provider. The default, also for nil, is the global one.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(o *options) { o.tracers = provider }
}

// WithLockName adds the attribute redislock.lock to metrics and spans: what name returns for the keys of a lock, such as
// "order" for order:7 and order:8. Return few different names, since each has time series of its own, and "" for none.
// name must not change keys; it is called several times for each lock, possibly concurrently.
func WithLockName(name func(keys []string) string) Option {
	return func(o *options) { o.name = name }
}

// WithKeysOnSpans adds the attribute redislock.keys to spans, the first ten of the keys, and the words of errors, which
// name keys. The default shows only how many keys there are.
func WithKeysOnSpans() Option {
	return func(o *options) { o.keysOnSpan = true }
}

// New returns a Tracer for [redislock.WithTracer]. It is for one Client, or for several whose figures may be added up.
// It returns an error if the meter provider refuses an instrument.
func New(opts ...Option) (*redislock.Tracer, error) {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.meters == nil {
		o.meters = otel.GetMeterProvider()
	}
	if o.tracers == nil {
		o.tracers = otel.GetTracerProvider()
	}
	m, err := newMetrics(o.meters.Meter(scope), o.name)
	if err != nil {
		return nil, err
	}
	s := &spans{tracer: o.tracers.Tracer(scope), name: o.name, keys: o.keysOnSpan}
	return redislock.Tracers(m.tracer(), s.tracerFuncs()), nil
}
