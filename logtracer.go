package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// LogTracer returns a Tracer that writes to logger. If logger is nil, each event goes to the [slog.Default] of that
// moment.
//
// It logs at level Warn when a lock is lost, when the validity of a kept lock ends, when a cleanup fails or is dropped,
// and when renewals begin to fail. It logs failing renewals once per outage. An outage lasts until Redis has answered
// and no lock is left whose last renewal failed. Everything else is at level Debug.
//
// It logs at most five keys of a lock, and how many more there are. It logs at most six characters of a token, because
// anyone who knows a whole token can release the lock.
func LogTracer(logger *slog.Logger) *Tracer {
	l := &logTracer{logger: logger, failing: make(map[*string]time.Time)}
	return &Tracer{
		ObtainStart: l.obtainStart,
		Refused:     l.refused,
		ObtainEnd:   l.obtainEnd,
		Refreshed:   l.refreshed,
		Lost:        l.lost,
		Released:    l.released,
		CleanedUp:   l.cleanedUp,
	}
}

type logTracer struct {
	logger *slog.Logger

	out     atomic.Bool           // an outage has begun and has not ended; written only while mu is held
	mu      sync.Mutex            // protects failing
	failing map[*string]time.Time // the locks whose last renewal failed, by the first of their keys: until when they are valid
}

// to returns the logger to write to.
func (l *logTracer) to() *slog.Logger { return cmp.Or(l.logger, slog.Default()) }

func (l *logTracer) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	l.to().LogAttrs(ctx, level, "redislock: "+message, attrs...)
}

// enabled reports whether the logger wants level Debug. Asking costs less than making the attributes.
func (l *logTracer) enabled(ctx context.Context) bool {
	return l.to().Enabled(ctx, slog.LevelDebug)
}

func (l *logTracer) obtainStart(ctx context.Context, e ObtainStart) context.Context {
	if l.enabled(ctx) {
		l.log(ctx, slog.LevelDebug, "acquiring", logKeys(e.Keys), slog.Duration("ttl", e.TTL),
			slog.Bool("queue", e.Queue), slog.Bool("fenced", e.Fenced))
	}
	return ctx
}

func (l *logTracer) refused(ctx context.Context, e Refused) {
	if !l.enabled(ctx) {
		return
	}
	attrs := []slog.Attr{logKeys(e.Keys), slog.Int("try", e.Try)}
	if e.Key != "" {
		attrs = append(attrs, slog.String("key", e.Key), slog.String("holder", short(e.Holder)),
			slog.String("metadata", e.Metadata), slog.Duration("ttl", e.TTL), slog.Int("ahead", e.Ahead))
	}
	l.log(ctx, slog.LevelDebug, "refused", attrs...)
}

func (l *logTracer) obtainEnd(ctx context.Context, e ObtainEnd) {
	if e.Err == nil {
		l.answered(e.Keys)
	}
	if !l.enabled(ctx) {
		return
	}
	attrs := []slog.Attr{
		logKeys(e.Keys), slog.Duration("wait", e.Wait), slog.Int("tries", e.Tries), slog.Int("resends", e.Resends),
	}
	if e.Err != nil {
		l.log(ctx, slog.LevelDebug, "not acquired", append(attrs, logError(e.Err))...)
		return
	}
	if e.Fence != 0 {
		attrs = append(attrs, slog.Int64("fence", e.Fence))
	}
	l.log(ctx, slog.LevelDebug, "acquired", append(attrs, slog.Time("until", e.Until))...)
}

func (l *logTracer) refreshed(ctx context.Context, e Refreshed) {
	level, message := slog.LevelDebug, "refreshed"
	if e.Renewal {
		message = "renewed"
	}
	switch {
	case e.Err == nil:
		l.answered(e.Keys)
	case !e.Renewal:
		message = "not refreshed"
	case errors.Is(e.Err, ErrLockNotHeld): // Redis has answered, and lost logs the warning
		message = "not renewed"
	case l.failed(e):
		level, message = slog.LevelWarn, "renewals fail"
	default:
		message = "not renewed"
	}
	if level == slog.LevelDebug && !l.enabled(ctx) {
		return
	}
	attrs := []slog.Attr{logKeys(e.Keys), slog.Duration("ttl", e.TTL), slog.Duration("left", e.Left)}
	if e.Err != nil {
		attrs = append(attrs, logError(e.Err))
	}
	l.log(ctx, level, message, attrs...)
}

func (l *logTracer) lost(ctx context.Context, e Lost) {
	l.forget(e.Keys)
	attrs := []slog.Attr{
		logKeys(e.Keys), slog.String("cause", string(e.Cause)), slog.Duration("held", e.Held), logError(e.Err),
	}
	if len(e.LostKeys) > 0 && len(e.LostKeys) < len(e.Keys) {
		attrs = append(attrs, slog.String("lost", listKeys(e.LostKeys)))
	}
	l.log(ctx, slog.LevelWarn, "lock lost", attrs...)
}

func (l *logTracer) released(ctx context.Context, e Released) {
	if e.Err == nil {
		l.answered(e.Keys)
	} else {
		l.forget(e.Keys)
	}
	if !l.enabled(ctx) {
		return
	}
	attrs := []slog.Attr{logKeys(e.Keys), slog.Duration("held", e.Held), slog.Duration("wait", e.Wait)}
	if e.Err != nil {
		l.log(ctx, slog.LevelDebug, "not released", append(attrs, logError(e.Err))...)
		return
	}
	l.log(ctx, slog.LevelDebug, "released", attrs...)
}

func (l *logTracer) cleanedUp(ctx context.Context, e CleanedUp) {
	attrs := []slog.Attr{logKeys(e.Keys), slog.String("why", e.Why)}
	switch {
	case e.Dropped:
		l.log(ctx, slog.LevelWarn, "no room to clean up", attrs...)
	case e.Err != nil:
		l.log(ctx, slog.LevelWarn, "not cleaned up", append(attrs, logError(e.Err))...)
	default:
		l.log(ctx, slog.LevelDebug, "cleaned up", attrs...)
	}
}

// failed notes a renewal that has failed, and reports whether an outage begins with it.
func (l *logTracer) failed(e Refreshed) (begins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing[&e.Keys[0]] = time.Now().Add(e.Left)
	return !l.out.Swap(true)
}

// answered notes that Redis has answered a call for these keys. The outage ends if no lock is left whose last renewal
// has failed. A lock that has lapsed does not count: its caller may have stopped keeping it without a release.
func (l *logTracer) answered(keys []string) {
	if !l.out.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failing, &keys[0])
	now := time.Now()
	maps.DeleteFunc(l.failing, func(_ *string, until time.Time) bool { return now.After(until) })
	if len(l.failing) == 0 {
		l.out.Store(false)
	}
}

// forget notes that a lock is not kept any more. That does not end an outage.
func (l *logTracer) forget(keys []string) {
	if !l.out.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failing, &keys[0])
}

func logKeys(keys []string) slog.Attr { return slog.String("keys", listKeys(keys)) }

// logError logs the words of an error. A handler that was given the error itself could print the fields of a RefusedError,
// and so a whole token.
func logError(err error) slog.Attr { return slog.String("error", err.Error()) }

// listKeys names the first keys and counts the others.
func listKeys(keys []string) string {
	const most = 5
	if len(keys) <= most {
		return strings.Join(keys, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:most], " "), len(keys)-most)
}
