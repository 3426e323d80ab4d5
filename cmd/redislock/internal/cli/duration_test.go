package cli_test

import (
	"testing"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "30": 30 * time.Second, "0.5": 500 * time.Millisecond, "500ms": 500 * time.Millisecond,
		"1m30s": 90 * time.Second, "1d": day, "1.5d": 36 * time.Hour, "2d12h": 60 * time.Hour, "1d500ms": day + 500*time.Millisecond,
		"-5": -5 * time.Second, "-1d": -day, "-1s": -time.Second, "1e3": 1000 * time.Second,
	} {
		if got, err := cli.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "1x", "1d2", "1d-2h", "-1d2h", "h", "NaN", "Inf", "1e300", "1000000d", "106751d24h", "1d2d", "1d+2h", " 1", "1 d",
	} {
		if got, err := cli.ParseDuration(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}
