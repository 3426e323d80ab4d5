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

	"github.com/redislock/redislock/internal/fault"
)

// LogTracer returns a Tracer that writes to logger. If logger is nil, each event goes to the [slog.Default] of that
// moment.
//
// It logs at level Warn when a lock is lost, when the validity of a kept lock ends, when a cleanup fails or is dropped, when
// the guard of a server closes, and when renewals begin to fail. It logs at level Info when keys are put back under a guard.
// It logs failing renewals once per outage. An outage lasts until Redis has answered
// and no lock is left whose last renewal failed. The tracer logs everything else at level Debug.
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
		GuardClosed: l.guardClosed,
		Restored:    l.restored,
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

// log writes an event, with the attributes in this order: the keys, attrs and, unless it is nil, err.
func (l *logTracer) log(
	ctx context.Context, level slog.Level, message string, keys []string, err error, attrs ...slog.Attr,
) {
	logger := cmp.Or(l.logger, slog.Default())
	if !logger.Enabled(ctx, level) {
		return
	}
	all := attrs
	if len(keys) > 0 {
		all = append([]slog.Attr{slog.String("keys", listKeys(keys))}, attrs...)
	}
	if err != nil {
		all = append(all, logError(err))
	}
	logger.LogAttrs(ctx, level, "redislock: "+message, all...)
}

// logError logs the words of an error. A handler that was given the error itself could print the fields of a RefusedError,
// and so a whole token.
func logError(err error) slog.Attr { return slog.String("error", err.Error()) }

func (l *logTracer) obtainStart(ctx context.Context, e ObtainStart) context.Context {
	attrs := []slog.Attr{slog.Duration("ttl", e.TTL), slog.Bool("queue", e.Queue), slog.Bool("fenced", e.Fenced)}
	if len(e.Shared) > 0 {
		attrs = append(attrs, slog.String("shared", listKeys(e.Shared)))
	}
	if len(e.Permits) > 0 {
		attrs = append(attrs, slog.Any("permits", e.Permits))
	}
	l.log(ctx, slog.LevelDebug, "acquiring", e.Keys, nil, attrs...)
	return ctx
}

func (l *logTracer) refused(ctx context.Context, e Refused) {
	attrs := []slog.Attr{slog.Int("try", e.Try)}
	if e.Key != "" {
		attrs = append(attrs, slog.String("key", e.Key), slog.String("holder", fault.Short(e.Holder)),
			slog.String("metadata", e.Metadata), slog.Duration("ttl", e.TTL), slog.Int("ahead", e.Ahead))
	}
	if e.Holders > 0 {
		attrs = append(attrs, slog.Int("holders", e.Holders))
	}
	if e.Closed > 0 {
		attrs = append(attrs, slog.Duration("closed", e.Closed))
	}
	l.log(ctx, slog.LevelDebug, "refused", e.Keys, nil, attrs...)
}

func (l *logTracer) obtainEnd(ctx context.Context, e ObtainEnd) {
	attrs := []slog.Attr{slog.Duration("wait", e.Wait), slog.Int("tries", e.Tries), slog.Int("resends", e.Resends)}
	if e.Err != nil {
		l.log(ctx, slog.LevelDebug, "not acquired", e.Keys, e.Err, attrs...)
		return
	}
	l.answered(e.Keys)
	if e.Fence != 0 {
		attrs = append(attrs, slog.Int64("fence", e.Fence))
	}
	l.log(ctx, slog.LevelDebug, "acquired", e.Keys, nil, append(attrs, slog.Time("until", e.Until))...)
}

func (l *logTracer) refreshed(ctx context.Context, e Refreshed) {
	level, message := slog.LevelDebug, "refreshed"
	switch {
	case e.Err == nil:
		l.answered(e.Keys)
		if e.Renewal {
			message = "renewed"
		}
	case !e.Renewal:
		message = "not refreshed"
	case errors.Is(e.Err, ErrLockNotHeld): // Redis has answered, and lost logs the warning
		message = "not renewed"
	case l.failed(e):
		level, message = slog.LevelWarn, "renewals fail"
	default:
		message = "not renewed"
	}
	l.log(ctx, level, message, e.Keys, e.Err, slog.Duration("ttl", e.TTL), slog.Duration("left", e.Left))
}

func (l *logTracer) guardClosed(ctx context.Context, e GuardClosed) {
	l.log(ctx, slog.LevelWarn, "guard closed: Redis may have forgotten locks", nil, nil,
		slog.String("server", e.Server), slog.Duration("for", e.For))
}

func (l *logTracer) restored(ctx context.Context, e Restored) {
	l.log(ctx, slog.LevelInfo, "put back", e.Keys, nil, slog.String("back", listKeys(e.Back)))
}

func (l *logTracer) lost(ctx context.Context, e Lost) {
	l.forget(e.Keys)
	attrs := []slog.Attr{slog.String("cause", string(e.Cause)), slog.Duration("held", e.Held), logError(e.Err)}
	if len(e.LostKeys) > 0 && len(e.LostKeys) < len(e.Keys) {
		attrs = append(attrs, slog.String("lost", listKeys(e.LostKeys)))
	}
	l.log(ctx, slog.LevelWarn, "lock lost", e.Keys, nil, attrs...)
}

func (l *logTracer) released(ctx context.Context, e Released) {
	message := "released"
	if e.Err == nil {
		l.answered(e.Keys)
	} else {
		l.forget(e.Keys)
		message = "not released"
	}
	l.log(ctx, slog.LevelDebug, message, e.Keys, e.Err, slog.Duration("held", e.Held), slog.Duration("wait", e.Wait))
}

func (l *logTracer) cleanedUp(ctx context.Context, e CleanedUp) {
	level, message := slog.LevelDebug, "cleaned up"
	switch {
	case e.Dropped:
		level, message, e.Err = slog.LevelWarn, "no room to clean up", nil
	case e.Err != nil:
		level, message = slog.LevelWarn, "not cleaned up"
	}
	l.log(ctx, level, message, e.Keys, e.Err, slog.String("why", e.Why))
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

// listKeys names the first keys and counts the others.
func listKeys(keys []string) string {
	const most = 5
	if len(keys) <= most {
		return strings.Join(keys, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:most], " "), len(keys)-most)
}
