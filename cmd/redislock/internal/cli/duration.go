package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// DurationVar adds a flag for a duration, as ParseDuration reads it. It may have a short name.
func DurationVar(flags *pflag.FlagSet, d *time.Duration, name, short string, value time.Duration, usage string) {
	*d = value
	flags.VarP((*duration)(d), name, short, usage)
}

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

// ParseDuration reads a number of seconds like 90 or 0.5, or numbers with units as in 500ms, 1m30s or 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	plain := text // as time.ParseDuration reads it
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		plain = number(seconds) + "s"
	} else if days, rest, ok := strings.Cut(text, "d"); ok {
		if count, err := strconv.ParseFloat(days, 64); err == nil && (count >= 0 || rest == "") {
			plain = number(24*count) + "h" + rest
		}
	}
	d, err := time.ParseDuration(plain)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write it like 30, 500ms, 1m30s or 2d", text)
	}
	return d, nil
}
