package argument_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/argument"
	"github.com/redislock/redislock/internal/fault"
)

// check expects an error that wraps ErrInvalid and says why, or none if why is "".
func check(t *testing.T, what string, err error, why string) {
	t.Helper()
	switch {
	case why == "" && err != nil:
		t.Errorf("%s: %v, want no error", what, err)
	case why != "" && (!errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), why)):
		t.Errorf("%s: %v, want an ErrInvalid that says %q", what, err, why)
	}
}

func TestGuard(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		maxTTL, deposed time.Duration
		why             string
	}{
		{2 * time.Millisecond, 0, ""},
		{30 * time.Second, 3 * time.Second, ""},
		{time.Second, time.Minute, ""},
		{day, day, ""},
		{2*time.Millisecond - 1, 0, "maxTTL 1.999999ms is under 2ms"},
		{0, 0, "maxTTL 0s is under 2ms"},
		{-time.Second, 0, "maxTTL -1s is under 2ms"},
		{time.Second, -1, "deposed -1ns is negative"},
		{day + 1, 0, "nobody would wait longer than 24h"},
		{time.Second, day + 1, "nobody would wait longer than 24h"},
	} {
		check(t, test.maxTTL.String()+", "+test.deposed.String(), argument.Guard(test.maxTTL, test.deposed), test.why)
	}
}

func TestTTL(t *testing.T) {
	for _, test := range []struct {
		ttl, maxTTL time.Duration
		why         string
	}{
		{time.Second, time.Second, ""},
		{time.Hour, 0, ""},
		{time.Second + 1, time.Second, "ttl 1.000000001s is above the 1s that WithGuard allows"},
	} {
		check(t, test.ttl.String()+" of "+test.maxTTL.String(), argument.TTL(test.ttl, test.maxTTL), test.why)
	}
}

// A program without a guard may share the database with one that has it.
func TestMarkerIsReserved(t *testing.T) {
	const marker = "redislock:guard"
	for _, test := range []struct {
		keys []string
		why  string
	}{
		{[]string{marker}, `key "redislock:guard" is reserved for the marker of a guard`},
		{[]string{"a", marker, "b"}, "is reserved"},
		{[]string{marker + "s", "a:" + marker, strings.ToUpper(marker)}, ""},
	} {
		check(t, strings.Join(test.keys, " "), argument.Keys(test.keys), test.why)
	}
	check(t, "a fence key", argument.FenceKey(marker, []string{"a"}), `FenceKey "redislock:guard" is reserved for the marker of a guard`)
	check(t, "another fence key", argument.FenceKey(marker+":fence", []string{"a"}), "")
}
