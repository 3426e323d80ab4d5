package life_test

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
)

// After a suspend, the wall clock is ahead of the monotonic one, which stood still. After a step it is as well, but no time
// has passed. Only package time can make such a time, so this test writes into one.
func TestUntilAfterSuspendOrStep(t *testing.T) {
	ask := lease.Suspended
	defer func() { lease.Suspended = ask }()
	for name, c := range map[string]struct {
		asleep time.Duration
		known  bool
		kept   bool // the lock is kept alive
		passed bool
	}{
		"a suspend of an hour":                      {asleep: time.Hour, known: true, passed: true},
		"a suspend of an hour, kept":                {asleep: time.Hour, known: true, kept: true, passed: true},
		"a step of an hour":                         {known: true, passed: true},
		"a step of an hour, kept":                   {known: true, kept: true, passed: false},
		"a step after a short suspend, kept":        {asleep: 9 * time.Second, known: true, kept: true, passed: false},
		"a step after a suspend of an hour, kept":   {asleep: time.Hour, known: true, kept: true, passed: true},
		"a step that no third clock can tell, kept": {kept: true, passed: true},
	} {
		t.Run(name, func(t *testing.T) {
			lease.Suspended = func(time.Time) (time.Duration, bool) { return c.asleep, c.known }
			l := &lock{until: time.Now().Add(10 * time.Second), events: &life.Events{}}
			held := context.Background()
			if c.kept {
				var stop func()
				held, stop = life.KeepAlive(held, l)
				defer stop()
			}
			wall := (*uint64)(unsafe.Pointer(&l.until)) // the first field; its seconds begin at bit 30
			*wall -= 3600 << 30
			if !time.Now().Before(l.until) || time.Now().Round(0).Before(l.until.Round(0)) {
				t.Fatal("package time has another layout by now; mend this test")
			}
			if passed := !time.Now().Before(life.Until(l)); passed != c.passed {
				t.Errorf("Until has passed: %v", passed)
			}
			if ended := held.Err() != nil; c.kept && ended != c.passed {
				t.Errorf("the context of the kept lock has ended: %v", ended)
			}
		})
	}
}
