package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const day = 24 * time.Hour

// DurationVar adds a flag for a duration, as ParseDuration reads it.
func DurationVar(flags *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	DurationVarP(flags, d, name, "", value, usage)
}

// DurationVarP is DurationVar with a short name.
func DurationVarP(flags *pflag.FlagSet, d *time.Duration, name, short string, value time.Duration, usage string) {
	*d = value
	flags.VarP((*duration)(d), name, short, usage)
}

// duration is a duration as the value of a flag.
type duration time.Duration

func (d *duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	*d = duration(parsed)
	return err
}

func (d *duration) String() string {
	if *d == 0 {
		return "0" // pflag shows no such default
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "D" }

// ParseDuration reads a duration as people write it: a number of seconds like 90 or 0.5, or numbers with units as in 500ms,
// 1m30s or 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return times(seconds, time.Second, text)
	}
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "0", text
	}
	count, err := strconv.ParseFloat(days, 64)
	if err != nil {
		return 0, notDuration(text)
	}
	sum, err := times(count, day, text)
	if err != nil || hasDays && rest == "" {
		return sum, err
	}
	more, err := time.ParseDuration(rest)
	switch {
	case err != nil, hasDays && (count < 0 || !strings.ContainsRune("0123456789.", rune(rest[0]))):
		return 0, notDuration(text)
	case more > 0 && sum > math.MaxInt64-more:
		return 0, tooLong(text)
	}
	return sum + more, nil
}

func times(count float64, unit time.Duration, text string) (time.Duration, error) {
	switch d := count * float64(unit); {
	case math.IsNaN(d):
		return 0, notDuration(text)
	case math.Abs(d) >= math.MaxInt64:
		return 0, tooLong(text)
	default:
		return time.Duration(math.Round(d)), nil
	}
}

func notDuration(text string) error {
	return fmt.Errorf("%q is not a duration; write it like 30, 500ms, 1m30s or 2d", text)
}

func tooLong(text string) error { return fmt.Errorf("%q is longer than 292 years", text) }
