package line

import (
	"testing"
	"time"
)

// The validity of a hand-off begins when the server says that it was made, at 99 % of its speed, but never later than any
// clock of ours allows.
func TestHandOffSince(t *testing.T) {
	sent := time.Now()
	after := sent.Add
	back := time.Now().Round(0) // a time without a monotonic reading is compared by the wall clock alone
	for name, c := range map[string]struct {
		at      int64 // in µs after the try was served
		arrived time.Time
		want    time.Duration
	}{
		"in time":                      {at: 1_000_000, arrived: after(time.Second), want: 990 * time.Millisecond},
		"late by far":                  {at: 1_000_000, arrived: after(time.Minute), want: 990 * time.Millisecond},
		"the server's clock ran ahead": {at: 3_600_000_000, arrived: after(time.Second), want: time.Second},
		"at once":                      {at: 0, arrived: after(time.Millisecond), want: 0},
		"our wall clock was set back":  {at: 1_000_000, arrived: back.Add(-time.Hour), want: 0},
	} {
		w := newWaiter()
		w.last = answer{sent, 1_795_306_246_131_123}
		got := w.Since(&HandOff{at: w.last.served + c.at, arrived: c.arrived})
		if got.Sub(sent) != c.want {
			t.Errorf("%s: it begins %v after the try was sent, want %v", name, got.Sub(sent), c.want)
		}
	}
}
