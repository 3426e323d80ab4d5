// The command redislock runs commands under locks on Redis, and shows who holds what. "redislock help" lists what it does.
package main

import (
	"context"
	"os"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

func main() {
	logging.Disable() // go-redis writes to stderr what its errors say as well
	env := &environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	code := execute(context.Background(), env, os.Args[1:])
	if env.endedBy == syscall.SIGINT {
		job.Raise(env.endedBy)
	}
	os.Exit(code)
}

// execute runs the command line args, and returns the exit code of the program.
func execute(ctx context.Context, env *environment, args []string) int {
	root := newRootCommand(env)
	root.SetArgs(args)
	return env.finish(root.ExecuteContext(ctx))
}
