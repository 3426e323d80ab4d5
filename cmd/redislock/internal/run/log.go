package run

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
)

// log writes what happens to the locks of a run, as one JSON object a line. The methods of a nil log do nothing.
type log struct {
	*slog.Logger

	mu      sync.Mutex // protects blocker
	blocker slog.Attr  // who was in the way at first
}

// newLog returns a log on stderr. From now on, errors go into it as well.
func newLog(env *cli.Env) *log {
	l := &log{Logger: slog.New(slog.NewJSONHandler(env.Stderr, nil))}
	_ = env.ReportTo(func(text string) { l.Error("error", "error", text) })
	return l
}

func (l *log) tracer() *redislock.Tracer {
	if l == nil {
		return nil
	}
	return &redislock.Tracer{Refused: l.refused, ObtainEnd: l.obtainEnd, Lost: l.lost, Released: l.released}
}

// blocker describes who is in the way. It cuts the token, because a whole one is enough to release the lock.
func blocker(e *redislock.RefusedError) slog.Attr {
	if e.Closed > 0 {
		return slog.Group("guard", millis("closed", e.Closed))
	}
	token := strings.ToValidUTF8(e.Token[:min(len(e.Token), 6)], "") // without half a character
	attrs := []any{"key", e.Key, "token", token, "metadata", e.Metadata, millis("ttl", e.TTL), "ahead", e.Ahead}
	if e.Holders > 0 {
		attrs = append(attrs, "holders", e.Holders)
	}
	if len(e.Waits) > 0 {
		attrs = append(attrs, "waits", e.Waits)
	}
	return slog.Group("blocker", attrs...)
}

func millis(name string, d time.Duration) slog.Attr { return slog.Int64(name+"_ms", d.Milliseconds()) }

func (l *log) refused(_ context.Context, e redislock.Refused) {
	if e.Key == "" { // only the first refusal says it
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocker = blocker(&redislock.RefusedError{Key: e.Key, Token: e.Holder, Metadata: e.Metadata, TTL: e.TTL, Ahead: e.Ahead})
}

func (l *log) obtainEnd(_ context.Context, e redislock.ObtainEnd) {
	l.mu.Lock()
	first := l.blocker
	l.mu.Unlock()
	outcome := "error"
	switch {
	case e.Err == nil:
		outcome = "acquired"
	case errors.Is(e.Err, redislock.ErrDeadlock):
		outcome = "deadlock"
	case errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded):
		outcome = "canceled"
	case errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, redislock.ErrNotObtained):
		outcome = "refused"
	}
	if first.Key != "" {
		l.Info("waited", "keys", e.Keys, millis("wait", e.Wait), "tries", e.Tries, "outcome", outcome, first)
	}
	if e.Err == nil {
		attrs := []any{"keys", e.Keys, millis("wait", e.Wait), "until", e.Until.UTC()}
		if e.Fence != 0 {
			attrs = append(attrs, "fence", e.Fence)
		}
		l.Info("acquired", attrs...)
	}
}

func (l *log) lost(_ context.Context, e redislock.Lost) {
	l.Error("lost", "keys", e.Keys, "lost", e.LostKeys, "cause", string(e.Cause), millis("held", e.Held),
		"error", e.Err.Error())
}

func (l *log) released(_ context.Context, e redislock.Released) {
	if e.Err == nil { // lost tells of a loss, and stays of keys that could not be released in the end
		l.Info("released", "keys", e.Keys, millis("held", e.Held))
	}
}

func (l *log) stays(e *locking.UnreleasedError) {
	l.Error("not released", "keys", e.Keys, "until", e.By.UTC(), "error", e.Err.Error())
}

func (l *log) left(keys []string, until time.Time) {
	if l != nil {
		l.Info("left", "keys", keys, "until", until.UTC())
	}
}
