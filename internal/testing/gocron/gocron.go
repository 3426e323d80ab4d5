// Package gocron has the two interfaces of github.com/go-co-op/gocron/v2 that docs/recipes.md implements, so that the recipe
// compiles and runs without a dependency on it.
package gocron

import "context"

// Locker acquires the lock of a job before gocron runs it. After an error, gocron skips the run.
type Locker interface {
	Lock(ctx context.Context, key string) (Lock, error)
}

// Lock is what gocron gives up when the job has ended.
type Lock interface {
	Unlock(ctx context.Context) error
}
