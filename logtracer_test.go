package redislock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
)

var _ = Describe("LogTracer", func() {
	var text *bytes.Buffer
	var t *redislock.Tracer
	level := new(slog.LevelVar)

	BeforeEach(func() {
		text = &bytes.Buffer{}
		level.Set(slog.LevelDebug)
		t = redislock.LogTracer(slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{
			Level: level,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))
	})
	count := func(level string) int { return strings.Count(text.String(), "level="+level) }
	// Each lock has a slice of keys of its own, as from the library.
	a, b, c := []string{"a"}, []string{"b"}, []string{"c"}
	renewal := func(keys []string, err error) redislock.Refreshed {
		return redislock.Refreshed{Keys: keys, Renewal: true, TTL: time.Minute, Left: 30 * time.Second, Err: err}
	}
	down := errors.New("down")

	It("shows five keys and six characters of a token", func(ctx SpecContext) {
		t.Refused(ctx, redislock.Refused{
			Keys: []string{"a", "b", "c", "d", "e", "f", "g"}, Try: 1, Key: "b", Holder: "q83vEjRWeJCrze8SNFZ4kA", Ahead: 2,
		})
		Expect(text.String()).To(Equal(`level=DEBUG msg="redislock: refused" keys="a b c d e and 2 more" try=1 key=b ` +
			"holder=q83vEj… metadata=\"\" ttl=0s ahead=2\n"))
	})

	It("says for how long the guard is closed, if that is why a try was refused", func(ctx SpecContext) {
		t.Refused(ctx, redislock.Refused{Keys: a, Try: 2, Closed: 20 * time.Second})
		Expect(text.String()).To(Equal(`level=DEBUG msg="redislock: refused" keys=a try=2 closed=20s` + "\n"))
	})

	It("logs a guard that closes at Warn, and keys that are put back at Info", func(ctx SpecContext) {
		t.GuardClosed(ctx, redislock.GuardClosed{Server: "db:6379", For: 33 * time.Second})
		t.Restored(ctx, redislock.Restored{Keys: []string{"a", "b", "c", "d", "e", "f", "g"}, Back: []string{"b"}})
		Expect(text.String()).To(Equal(
			`level=WARN msg="redislock: guard closed: Redis may have forgotten locks" server=db:6379 for=33s` + "\n" +
				`level=INFO msg="redislock: put back" keys="a b c d e and 2 more" back=b` + "\n"))
	})

	It("logs losses and failed cleanups at Warn", func(ctx SpecContext) {
		t.Lost(ctx, redislock.Lost{
			Keys: []string{"a", "b"}, LostKeys: []string{"b"}, Cause: redislock.LossTaken, Held: time.Second, Err: down,
		})
		t.CleanedUp(ctx, redislock.CleanedUp{Keys: []string{"a"}, Why: redislock.WhyLate, Err: down})
		t.CleanedUp(ctx, redislock.CleanedUp{Keys: []string{"a"}, Why: redislock.WhyLate, Dropped: true})
		Expect(count("WARN")).To(Equal(3))
		Expect(text.String()).To(ContainSubstring(
			`level=WARN msg="redislock: lock lost" keys="a b" cause=taken held=1s error=down lost=b`))
	})

	It("logs everything else at Debug", func(ctx SpecContext) {
		t.ObtainStart(ctx, redislock.ObtainStart{})
		t.Refused(ctx, redislock.Refused{})
		t.ObtainEnd(ctx, redislock.ObtainEnd{Err: down})
		t.ObtainEnd(ctx, redislock.ObtainEnd{Keys: a})
		t.Refreshed(ctx, redislock.Refreshed{Keys: a})
		t.Refreshed(ctx, redislock.Refreshed{Keys: a, Err: down})
		t.Refreshed(ctx, renewal(a, nil))
		t.Released(ctx, redislock.Released{Err: down})
		t.Released(ctx, redislock.Released{})
		t.CleanedUp(ctx, redislock.CleanedUp{})
		Expect(count("DEBUG")).To(Equal(10))
		Expect(count("WARN")).To(BeZero())
		text.Reset()
		level.Set(slog.LevelInfo)
		t.ObtainEnd(ctx, redislock.ObtainEnd{})
		Expect(text.String()).To(BeEmpty())
	})

	It("warns once per outage that renewals fail", func(ctx SpecContext) {
		for range 3 {
			t.Refreshed(ctx, renewal(a, down))
			t.Refreshed(ctx, renewal(b, down))
			t.Refreshed(ctx, renewal(c, nil))
		}
		Expect(count("WARN")).To(Equal(1))
		t.Refreshed(ctx, renewal(a, nil))
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(1), "b has not recovered yet")
		t.Released(ctx, redislock.Released{Keys: b})
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(2), "another outage")
	})

	It("warns once per outage, even if its locks lapse one after the other", func(ctx SpecContext) {
		for _, lock := range [][]string{a, b, c} {
			t.Refreshed(ctx, renewal(lock, down))
			t.Lost(ctx, redislock.Lost{Keys: lock, Cause: redislock.LossLapsed, Err: redislock.ErrLapsed})
			t.Released(ctx, redislock.Released{Keys: lock, Err: down})
		}
		Expect(strings.Count(text.String(), "renewals fail")).To(Equal(1))
		t.ObtainEnd(ctx, redislock.ObtainEnd{Keys: []string{"a"}})
		t.Refreshed(ctx, renewal(a, down))
		Expect(strings.Count(text.String(), "renewals fail")).To(Equal(2), "Redis had answered in between")
	})

	It("does not wait for a lock that has lapsed before it ends an outage", func(ctx SpecContext) {
		e := renewal(a, down)
		e.Left = time.Millisecond
		t.Refreshed(ctx, e)
		time.Sleep(2 * time.Millisecond)
		t.Refreshed(ctx, renewal(b, nil))
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(2))
	})

	It("tells locks on the same keys apart", func(ctx SpecContext) {
		t.Refreshed(ctx, renewal(a, down))
		t.Refreshed(ctx, renewal([]string{"a"}, nil))
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(1), "the first lock has not recovered yet")
	})

	It("warns once of a lock that a renewal finds lost", func(ctx SpecContext) {
		t.Refreshed(ctx, renewal(a, fmt.Errorf("%w: another holder", redislock.ErrLockNotHeld)))
		t.Lost(ctx, redislock.Lost{Keys: a, LostKeys: a, Cause: redislock.LossTaken, Err: redislock.ErrLockNotHeld})
		Expect(count("WARN")).To(Equal(1))
		Expect(text.String()).NotTo(ContainSubstring("renewals fail"))
	})

	It("gives a handler no whole token", func(ctx SpecContext) {
		handler := &everyField{}
		redislock.LogTracer(slog.New(handler)).ObtainEnd(ctx, redislock.ObtainEnd{
			Keys: a, Err: &redislock.RefusedError{Key: "a", Token: "q83vEjRWeJCrze8SNFZ4kA", TTL: time.Minute},
		})
		Expect(handler.text.String()).To(And(ContainSubstring("q83vEj"), Not(ContainSubstring("q83vEjR"))))
	})

	It("writes to the default logger if it has none", func(ctx SpecContext) {
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
		redislock.LogTracer(nil).CleanedUp(ctx, redislock.CleanedUp{Dropped: true})
		Expect(count("WARN")).To(Equal(1))
	})
})

// everyField is a handler that prints values with all of their fields, as some do.
type everyField struct{ text strings.Builder }

func (*everyField) Enabled(context.Context, slog.Level) bool { return true }
func (h *everyField) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *everyField) WithGroup(string) slog.Handler          { return h }
func (h *everyField) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		_, _ = fmt.Fprintf(&h.text, "%s=%#v ", a.Key, a.Value.Any())
		return true
	})
	return nil
}
