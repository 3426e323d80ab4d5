// Package cli is what all commands share at the command line: streams and variables, arguments, signals, errors and exit
// codes. It knows nothing of Redis and locks.
package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

// Env is the environment of the program.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(name string) string

	mu     sync.Mutex        // protects report
	report func(text string) // what to do with the text of an error; nil for a line on stderr
}

// ReportTo makes Complain call report with the text of an error, instead of writing a line to stderr, until back is called.
// Complain is called from several goroutines, perhaps at the same time.
func (e *Env) ReportTo(report func(text string)) (back func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.report
	e.report = report
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.report = before
	}
}

// Screen returns what can be shown on stdout.
func (e *Env) Screen() term.Screen { return term.ScreenOf(e.Stdout, e.Getenv) }

// Complain reports err, in one line.
func (e *Env) Complain(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", ": ") // joined errors have lines
	text = strings.ReplaceAll(strings.TrimPrefix(text, "redislock: "), ": redislock: ", ": ")
	e.mu.Lock()
	report := e.report
	e.mu.Unlock()
	if report != nil {
		report(text)
		return
	}
	fmt.Fprint(e.Stderr, Complaint(text))
}

// Complaint returns the line on stderr for the text of an error.
func Complaint(text string) string { return "redislock: " + words.Printable(text) + "\n" }

// Agrees asks a question on stderr, and reports whether the answer is yes. The end of ctx is no.
func (e *Env) Agrees(ctx context.Context, question string) bool {
	fmt.Fprint(e.Stderr, question+" [y/N] ")
	answers := make(chan string, 1)
	go func() { // ends with an answer, or with the program
		answer, _ := bufio.NewReader(e.Stdin).ReadString('\n')
		answers <- answer
	}()
	select {
	case answer := <-answers:
		answer = strings.ToLower(strings.TrimSpace(answer))
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		return false
	}
}

// FlagsOnly is the Args of commands without arguments.
func FlagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 { // do not repeat them: one may be an address with a password
		return Usagef(`%s takes flags only; run "%s --help"`, cmd.Name(), cmd.CommandPath())
	}
	return nil
}

// KeysWanted is the Args of commands that take the names of keys.
func KeysWanted(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return NoKey(cmd)
	}
	return CheckKeys(args)
}

// NoKey returns the usage error for a command that was given no key.
func NoKey(cmd *cobra.Command) error {
	return Usagef(`%s needs a KEY; run "%s --help"`, cmd.Name(), cmd.CommandPath())
}

// AnyKeys is the Args of commands that also take keys as flags.
func AnyKeys(_ *cobra.Command, args []string) error { return CheckKeys(args) }

// CheckKeys returns a usage error if a key is empty.
func CheckKeys(keys []string) error {
	for i, key := range keys {
		if key == "" {
			return Usagef("KEY %d of %d is empty; is a variable unset?", i+1, len(keys))
		}
	}
	return nil
}

// Describe gives a command its help: a text, and below a line "Examples:" how to call the command. Its flags are listed in
// the order in which they are added.
func Describe(help string, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().SortFlags = false
	cmd.Long, cmd.Example, _ = strings.Cut(strings.TrimRight(help, "\n"), "\n\nExamples:\n")
	return cmd
}

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
