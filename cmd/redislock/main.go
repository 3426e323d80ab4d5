// The command redislock shows what the library of the same name does.
//
//	redislock demo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// command is one subcommand. Each has a file of its own, named for it.
type command struct {
	name    string
	summary string // half a line, for the usage

	// run does the work. It returns flag.ErrHelp if all it did was to print its usage, a usageError if the arguments
	// cannot be used, and any other error if it failed. It ends soon after ctx.
	run func(ctx context.Context, args []string, stdout io.Writer) error
}

var commands = []command{
	{name: "demo", summary: "watch two workers share three resources, in six seconds", run: runDemo},
}

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as of a program that Ctrl-C ended
)

// usageError says which arguments cannot be used, and what to do instead.
type usageError string

func (e usageError) Error() string { return string(e) }

func main() {
	// Each of these would otherwise end the program before it has tidied up; SIGPIPE is what `redislock demo | head` gets.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once

	// Not so a second SIGPIPE, which comes from the next line that is printed.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	logging.Disable() // go-redis writes to stderr what its errors say as well
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the subcommand that args name, and returns the exit code of the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		printUsage(stderr)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			printUsage(stdout)
			return exitOK
		}
		name, args = args[0], []string{"-h"} // `redislock help demo` is `redislock demo -h`
	}
	for _, c := range commands {
		if c.name == name {
			return exitCode(ctx, name, c.run(ctx, args, stdout), stderr)
		}
	}
	fmt.Fprintf(stderr, "redislock: there is no subcommand %q; run \"redislock help\" for a list\n", name)
	return exitUsage
}

// exitCode prints err in one line, and returns the exit code for it.
func exitCode(ctx context.Context, name string, err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	fmt.Fprintf(stderr, "redislock %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", ": ")) // joined errors have lines
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "redislock shows how the Go library redislock locks several resources at once, on Redis.\n\nUsage:\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  redislock %-6s  %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\n\"redislock help <subcommand>\" tells more about one of them.\n")
}

// parse reads the flags of a subcommand that takes no other arguments. Asked for help, it prints the usage text and the
// flags.
func parse(flags *flag.FlagSet, args []string, usage string, stdout io.Writer) error {
	flags.SetOutput(io.Discard) // errors are printed by exitCode
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		flags.VisitAll(func(f *flag.Flag) {
			value, what := flag.UnquoteUsage(f)
			fmt.Fprintf(stdout, "  --%s %s\n        %s\n", f.Name, value, what)
		})
		return err
	case err != nil:
		return usageError(fmt.Sprintf("%v; run \"redislock help %s\"", err, flags.Name()))
	case flags.NArg() > 0: // not repeated here: it may be an address with a password in it
		return usageError(fmt.Sprintf("takes flags only; run \"redislock help %s\"", flags.Name()))
	}
	return nil
}
