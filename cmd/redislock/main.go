// The command redislock runs commands under locks on Redis, and shows who holds what. "redislock help" lists what it does.
package main

import (
	"context"
	"os"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

func main() {
	logging.Disable() // go-redis writes to stderr what its errors say as well
	env := &cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	root := newRootCommand(env)
	root.SetArgs(os.Args[1:])
	code, signal := env.Finish(root.ExecuteContext(context.Background()))
	if signal == syscall.SIGINT {
		job.Raise(signal)
	}
	os.Exit(code)
}
