// Package redislockotel reports to OpenTelemetry what happens to the locks of a redislock Client.
//
//	tracer, err := redislockotel.New()
//	…
//	locks := redislock.New(client, redislock.WithTracer(tracer))
//
// # Metrics
//
//   - redislock.obtain.duration (histogram, s): how long calls of Obtain took, including their waits. Attribute outcome:
//     obtained, refused, canceled (ctx ended, or the Client was closed) or error.
//   - redislock.hold.duration (histogram, s): how long locks were held. Attribute end: released, lost or lapsed. A lock
//     that expires without being kept, refreshed or released is not counted.
//   - redislock.held (up-down counter): locks that are held and valid.
//   - redislock.waiting (up-down counter): calls of Obtain that were refused and keep trying.
//   - redislock.renewal.margin (histogram, a share from 0 to 1): how much of the validity was left when a renewal was
//     confirmed. The library sends a renewal when two thirds are left. Near 0, locks are about to be lost.
//   - redislock.lost (counter): lost locks. Attribute cause: taken, gone or lapsed.
//   - redislock.cleanups (counter): releases in the background. Attribute result: done, failed or dropped; attribute why:
//     one of redislock's Why constants.
//   - redislock.guard.closures (counter): how often a Client found that the guard of a server had closed, because the
//     server may have forgotten locks. Attribute server: its address.
//   - redislock.restored (counter): locks whose keys were put back at a server that had forgotten them. On a quorum, each
//     server counts.
//
// No metric has keys or tokens. [WithLockName] adds the attribute redislock.lock, a name that you choose for a set of keys.
//
// # Spans
//
// redislock.obtain is a call of Obtain. Its attributes say how many keys the lock has, how the call ended, and how many
// tries and resends it took. Spans that hooks of the Redis client make for commands sent by themselves are its children.
// With [redislock.Options.Explain], the span of a refused call also has the metadata of the holder that blocked it, and
// at most six characters of its token. redislock.release is a call of Release. Its attributes say how many keys the lock
// has, and how long it was held. Spans name keys only with [WithKeysOnSpans].
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
	name       func(keys []string) string // returns "" for no name
	keysOnSpan bool
}

// WithMeterProvider makes New take the meter from provider. The default, also for nil, is the global provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *options) { o.meters = provider }
}

// WithTracerProvider makes New take the tracer from provider. The default, also for nil, is the global provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(o *options) { o.tracers = provider }
}

// WithLockName adds the attribute redislock.lock to metrics and spans. Its value is what name returns for the keys of the
// lock, for example "order" for order:7 and order:8. Return few different names, because each has time series of its
// own. For "", there is no attribute. The Tracer calls name several times for each lock, possibly concurrently. name must
// not change keys, and must return the same name for the same keys.
func WithLockName(name func(keys []string) string) Option {
	return func(o *options) { o.name = name }
}

// WithKeysOnSpans adds the first ten keys to spans, as the attribute redislock.keys, and the text of errors, which names
// keys. The default adds only the number of keys.
func WithKeysOnSpans() Option {
	return func(o *options) { o.keysOnSpan = true }
}

// New returns a Tracer for [redislock.WithTracer]. Several Clients can share it. Its metrics are then the sums over these
// Clients. New returns an error if the meter provider refuses an instrument.
func New(opts ...Option) (*redislock.Tracer, error) {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.name == nil {
		o.name = func([]string) string { return "" }
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
