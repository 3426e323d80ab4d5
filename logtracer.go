package redislock

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// LogTracer returns a Tracer that writes to logger; nil stands for [slog.Default] at the time of each event. It logs at
// Warn when a lock was lost or lapsed, when a cleanup failed or found no room, and when renewals begin to fail: once an
// outage, which lasts until no lock is left that could not be renewed. Everything else is at Debug.
//
// Of the keys it logs five at most, and how many more there are; of the token of a holder six characters, since who
// knows a whole token can release the lock.
func LogTracer(logger *slog.Logger) *Tracer {
	l := &logTracer{logger: logger, failing: make(map[uint64]time.Time)}
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

	mu      sync.Mutex           // protects failing
	failing map[uint64]time.Time // the locks whose last renewal failed, by their hash, and until when they may be valid
}

func (l *logTracer) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, level, "redislock: "+message, attrs...)
}

// enabled reports whether anybody reads what is at Debug. Attributes cost more than the look.
func (l *logTracer) enabled(ctx context.Context) bool {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	return logger.Enabled(ctx, slog.LevelDebug)
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
	switch {
	case e.Renewal && e.Err == nil:
		message = "renewed"
		l.recovered(e.Keys)
	case e.Renewal:
		message = "not renewed"
		if l.failed(e) {
			level, message = slog.LevelWarn, "renewals fail"
		}
	case e.Err != nil:
		message = "not refreshed"
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
	l.recovered(e.Keys)
	attrs := []slog.Attr{
		logKeys(e.Keys), slog.String("cause", string(e.Cause)), slog.Duration("held", e.Held), logError(e.Err),
	}
	if len(e.LostKeys) > 0 && len(e.LostKeys) < len(e.Keys) {
		attrs = append(attrs, slog.String("lost", listKeys(e.LostKeys)))
	}
	l.log(ctx, slog.LevelWarn, "lock lost", attrs...)
}

func (l *logTracer) released(ctx context.Context, e Released) {
	l.recovered(e.Keys)
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

// failed notes a renewal that has failed, and reports whether an outage begins with it. A lock is forgotten when its
// validity has passed: its caller may have stopped keeping it without a release.
func (l *logTracer) failed(e Refreshed) bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock, until := range l.failing {
		if now.After(until) {
			delete(l.failing, lock)
		}
	}
	begins := len(l.failing) == 0
	l.failing[hashKeys(e.Keys)] = now.Add(e.Left)
	return begins
}

// recovered notes that a lock was renewed, or is not kept any more.
func (l *logTracer) recovered(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failing) > 0 {
		delete(l.failing, hashKeys(keys))
	}
}

var keySeed = maphash.MakeSeed()

// hashKeys returns a number that stands for a set of keys within this process.
func hashKeys(keys []string) uint64 {
	var h maphash.Hash
	h.SetSeed(keySeed)
	for _, key := range keys {
		_, _ = h.WriteString(key) // never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

func logKeys(keys []string) slog.Attr { return slog.String("keys", listKeys(keys)) }

func logError(err error) slog.Attr { return slog.Any("error", err) }

// listKeys names the first keys, and counts the others.
func listKeys(keys []string) string {
	const most = 5
	if len(keys) <= most {
		return strings.Join(keys, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:most], " "), len(keys)-most)
}

// short cuts a token to what may be shown.
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
