package main

import (
	"context"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

// globals are the environment and the flags that every command has.
type globals struct {
	*environment

	connection connection
}

const rootHelp = `redislock runs commands under locks on Redis, and shows who holds which lock, who
waits for it, and whether the Redis can be trusted with it.

A lock is a Redis key with a time to live. Several keys are taken all or none.`

const rootExample = `  redislock run -k nightly -- ./backup.sh         # one at a time, wherever it is started
  redislock run -k order:7 -k stock:42 --no-wait -- ./ship
  redislock ls 'order:*'                          # which locks are there?
  redislock inspect order:7                       # who has it, and who waits?
  redislock doctor                                # can this Redis be trusted with locks?
  redislock demo                                  # see it work, without a Redis`

func newRootCommand(env *environment) *cobra.Command {
	g := &globals{environment: env}
	root := &cobra.Command{
		Use:           "redislock",
		Short:         "Run commands under locks on Redis, and see who holds what",
		Long:          rootHelp,
		Example:       rootExample,
		Version:       version(),
		Args:          noSubcommand,
		SilenceErrors: true, // finish prints them
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("redis") && g.connection.url == "" {
				return usageError("--redis is empty; is a variable unset?")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(env.stderr)
			_ = cmd.Help()
			return exit(exitUsage)
		},
	}
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.SetVersionTemplate("redislock {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(`%w; run "%s --help"`, err, cmd.CommandPath())
	})
	root.PersistentFlags().SortFlags = false
	g.connection.addFlags(root.PersistentFlags())
	root.AddCommand(
		newRunCommand(g),
		newInspectCommand(g),
		newTTLCommand(g),
		newWaitCommand(g),
		newReleaseCommand(g),
		newDemoCommand(g),
		newLsCommand(g),
		newDoctorCommand(g),
		newExitCodesTopic(),
		newAddressesTopic(),
	)
	refuseUnknownTopics(root)
	return root
}

// refuseUnknownTopics makes help fail for what it knows nothing of. Cobra's shows the help of the root then.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	show := help.Run
	help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
		if topic, rest, err := root.Find(args); err != nil || topic == root && len(rest) > 0 {
			return noSubcommand(root, args)
		}
		show(cmd, args)
		return nil
	}
}

// version returns the version of the module, with which Go stamps what it builds.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(unknown version)"
	}
	return build.Main.Version
}

// noSubcommand is for what reaches the root command: nothing, or the name of no subcommand.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return usageError(`there is no subcommand %q; did you mean "redislock %s"?`, args[0], like[0])
	}
	return usageError(`there is no subcommand %q; run "redislock help" for a list`, args[0])
}

// flagsOnly is the Args of commands without arguments.
func flagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 { // not repeated here: it may be an address with a password in it
		return usageError(`%s takes flags only; run "%s --help"`, cmd.Name(), cmd.CommandPath())
	}
	return nil
}

// keysWanted is the Args of commands that take the names of keys.
func keysWanted(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError(`%s needs a KEY; run "%s --help"`, cmd.Name(), cmd.CommandPath())
	}
	for i, key := range args {
		if key == "" {
			return usageError("KEY %d of %d is empty; is a variable unset?", i+1, len(args))
		}
	}
	return nil
}

// untilSignal returns the RunE of a command that needs to tidy up when a signal comes: the ctx of run ends, and a second
// signal ends the program at once. SIGPIPE is what `redislock demo | head` gets.
func untilSignal(run func(context.Context, *cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, end := context.WithCancelCause(cmd.Context())
		defer end(nil)
		caught := make(chan os.Signal, 1)
		dies := !signal.Ignored(syscall.SIGPIPE)
		signal.Notify(caught, job.Endings()...)
		// Not so a second SIGPIPE, which comes from the next line that is printed.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		defer signal.Stop(caught)
		go func() {
			select {
			case s := <-caught:
				signal.Stop(caught)
				end(job.Signalled{Signal: s.(syscall.Signal)})
			case <-ctx.Done():
			}
		}()
		err := run(ctx, cmd, args)
		if write, ours := err.(*fs.PathError); ours && dies && write.Err == syscall.EPIPE { //nolint:errorlint // no more to say
			return job.Signalled{Signal: syscall.SIGPIPE} // nobody reads any longer
		}
		if err != nil && ctx.Err() != nil {
			return &exitError{codeOf(context.Cause(ctx)), err}
		}
		return err
	}
}
