// Command torture breaks everything around the library, for as long as you like, and checks that the library keeps its
// promises.
//
//	go run ./torture [--minutes N] [--topology one|memory|sentinel|cluster|quorum|all] [--seed S] [--controls] [--out DIR]
//
// It starts its own redis-servers and worker processes, and ends them. docs/torture.md explains what it does, and has the
// results of a long run.
package main

import (
	"fmt"
	"os"

	"github.com/redislock/redislock/torture/internal/worker"
)

func main() {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "worker":
			exit(worker.Main(os.Args[2]))
		case "last":
			exit(worker.Last(os.Args[2]))
		case "recheck":
			exit(recheck(os.Stdout, os.Args[2]))
		}
	}
	exit(run(os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
