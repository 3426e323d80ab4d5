// The command redislock runs commands under locks on Redis, and shows who holds what. "redislock help" lists what it does.
package main

import (
	"context"
	_ "embed"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/acquire"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/demo"
	"github.com/redislock/redislock/cmd/redislock/internal/doctor"
	"github.com/redislock/redislock/cmd/redislock/internal/guard"
	"github.com/redislock/redislock/cmd/redislock/internal/inspect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/ls"
	"github.com/redislock/redislock/cmd/redislock/internal/release"
	"github.com/redislock/redislock/cmd/redislock/internal/renew"
	"github.com/redislock/redislock/cmd/redislock/internal/run"
	"github.com/redislock/redislock/cmd/redislock/internal/serve"
	"github.com/redislock/redislock/cmd/redislock/internal/tree"
	"github.com/redislock/redislock/cmd/redislock/internal/ttl"
	"github.com/redislock/redislock/cmd/redislock/internal/wait"
)

func main() {
	logging.Disable() // go-redis writes to stderr what its errors say as well
	env := &cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	root := newRootCommand(env)
	code, signal := env.Finish(root.ExecuteContext(context.Background()))
	if signal == syscall.SIGINT {
		job.Raise(signal)
	}
	os.Exit(code)
}

//go:embed help.txt
var help string

func newRootCommand(env *cli.Env) *cobra.Command {
	target := &connect.Target{Env: env}
	root := cli.Describe(help, &cobra.Command{
		Use: "redislock", Short: "Run commands under locks on Redis, and see who holds what",
		Version: version(), Args: noSubcommand,
		SilenceErrors: true, // Finish prints them
		SilenceUsage:  true, SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return target.CheckFlags(cmd.Flags()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(env.Stderr)
			_ = cmd.Help()
			return cli.Exit(cli.Usage)
		},
	})
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root && cmd.Flags().NArg() > 0 { // the flag may be known to the subcommand that is meant
			return noSubcommand(cmd, cmd.Flags().Args())
		}
		return cli.Usagef(`%w; run "%s --help"`, err, cmd.CommandPath())
	})
	root.PersistentFlags().SortFlags = false
	target.AddFlags(root.PersistentFlags())
	root.AddCommand(
		run.New(target), inspect.New(target), tree.New(target), ttl.New(target), wait.New(target), acquire.New(target),
		renew.New(target), release.New(target), demo.New(target), ls.New(target), doctor.New(target), guard.New(target),
		serve.New(target), cli.NewExitCodesTopic(), connect.NewAddressesTopic(),
	)
	refuseUnknownTopics(root)
	return root
}

// refuseUnknownTopics makes help fail for an unknown topic. Cobra's own shows the help of the root instead.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	cmd, _, _ := root.Find([]string{"help"})
	show := cmd.Run
	cmd.Run, cmd.RunE = nil, func(cmd *cobra.Command, args []string) error {
		if topic, rest, err := root.Find(args); err != nil || topic == root && len(rest) > 0 {
			return noSubcommand(root, args)
		}
		show(cmd, args)
		return nil
	}
}

// version returns the version of the module, which Go stamps into the program.
func version() string {
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "(unknown version)"
}

// noSubcommand checks the arguments of the root command: there are none, or the first names no subcommand.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return cli.Usagef(`there is no subcommand %q; did you mean "redislock %s"?`, args[0], like[0])
	}
	return cli.Usagef(`there is no subcommand %q; run "redislock help" for a list`, args[0])
}
