package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/gocron"
)

// The code of docs/recipes.md, which a spec compares with the page.

// campaign calls lead whenever this candidate is elected, until ctx ends. lead must return when its ctx ends: the
// leadership is lost then, or this candidate is to step down.
func campaign(ctx context.Context, locks *redislock.Client, ttl time.Duration, candidate string, lead func(context.Context) error) {
	inLine := &redislock.Options{Queue: true, Metadata: candidate}
	for ctx.Err() == nil {
		err := locks.Do(ctx, []string{"leader"}, ttl, inLine, lead)
		if err != nil && ctx.Err() == nil {
			log.Printf("%s does not lead: %v", candidate, err)
			time.Sleep(100 * time.Millisecond) // Redis may be away
		}
	}
}

func Example_leaderElection() {
	ctx, client := setUp()
	locks := redislock.New(client)
	defer locks.Close()
	led := make(chan bool)
	ended := make(chan bool)
	stand := func(ctx context.Context, candidate string) {
		campaign(ctx, locks, 600*time.Millisecond, candidate, func(ctx context.Context) error {
			fmt.Println(candidate, "leads")
			led <- true
			<-ctx.Done() // the work of a leader ends here
			fmt.Println(candidate, "stops:", context.Cause(ctx))
			return nil
		})
		ended <- true
	}

	one, stepDown := context.WithCancel(ctx)
	go stand(one, "one")
	<-led
	client.Del(ctx, "leader") // somebody tidied up
	<-led

	two, stop := context.WithCancel(ctx)
	go stand(two, "two")
	for waiters := 0; waiters == 0; time.Sleep(time.Millisecond) {
		found, err := locks.Inspect(ctx, "leader")
		if err != nil {
			log.Fatal(err)
		}
		waiters = found[0].Waiters
	}
	stepDown()
	<-led // at once: the release hands the leadership over
	<-ended
	stop()
	<-ended
	// Output:
	// one leads
	// one stops: redislock: lock not held: "leader" is gone
	// one leads
	// one stops: context canceled
	// two leads
	// two stops: context canceled
}

// atLeast runs fn under a lock that nobody else gets before least has passed since the grant, even if fn ends sooner or
// this process crashes.
func atLeast(
	ctx context.Context, locks *redislock.Client, key string, least time.Duration, fn func(context.Context) error,
) error {
	lock, err := locks.Obtain(ctx, key, max(least, 10*time.Second), nil) // a crash leaves it for that long
	if err != nil {
		return err
	}
	began := time.Now()
	held, stop := lock.KeepAlive(ctx)
	defer stop()
	err = fn(held)
	stop()
	ctx = context.WithoutCancel(ctx) // what follows is to be done in any case
	if left := least - time.Since(began); left > 2*time.Millisecond {
		return errors.Join(err, lock.Refresh(ctx, left, nil)) // it expires by itself
	}
	return errors.Join(err, lock.Release(ctx))
}

func Example_lockAtLeastFor() {
	ctx, client := setUp()
	locks := redislock.New(client)
	job := func(context.Context) error {
		fmt.Println("a short job runs")
		return nil
	}

	fmt.Println(atLeast(ctx, locks, "nightly", time.Second, job))
	fmt.Println(atLeast(ctx, locks, "nightly", time.Second, job)) // on a machine whose clock is behind
	time.Sleep(1100 * time.Millisecond)
	fmt.Println(atLeast(ctx, locks, "nightly", time.Second, job))
	// Output:
	// a short job runs
	// <nil>
	// redislock: not obtained
	// a short job runs
	// <nil>
}

// atMost waits for the lock and runs fn under it, both together for limit at most. Then the ctx of fn ends. If fn goes on
// nevertheless, the lock is not renewed any more, and others get it one ttl later.
func atMost(
	ctx context.Context, locks *redislock.Client, key string, limit time.Duration, fn func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return locks.Do(ctx, []string{key}, 10*time.Second, &redislock.Options{Queue: true}, fn)
}

func Example_limit() {
	ctx, client := setUp()
	locks := redislock.New(client)
	defer locks.Close()

	err := atMost(ctx, locks, "report", 200*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done() // work that takes too long
		return context.Cause(ctx)
	})
	fmt.Println(err)
	fmt.Println("locked:", client.Exists(ctx, "report").Val() == 1)
	// Output:
	// context deadline exceeded
	// locked: false
}

// locker lets one of several instances of gocron run a job. Pass it to gocron.WithDistributedLocker.
type locker struct {
	locks *redislock.Client
	least time.Duration // longer than the clocks of the instances differ
}

// Lock acquires the lock of a job, and keeps it until Unlock.
func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := l.locks.Obtain(ctx, key, max(l.least, 10*time.Second), nil)
	if err != nil {
		return nil, err
	}
	_, stop := lock.KeepAlive(context.WithoutCancel(ctx))
	return &jobLock{lock: lock, stop: stop, end: time.Now().Add(l.least)}, nil
}

type jobLock struct {
	lock *redislock.Lock
	stop func()
	end  time.Time // not to be released before
}

// Unlock releases the lock, or lets it expire if an instance whose clock is behind could still start the same run.
func (j *jobLock) Unlock(ctx context.Context) error {
	j.stop()
	ctx = context.WithoutCancel(ctx)
	if left := time.Until(j.end); left > 2*time.Millisecond {
		return j.lock.Refresh(ctx, left, nil)
	}
	return j.lock.Release(ctx)
}

func Example_gocron() {
	ctx, client := setUp()
	locks := redislock.New(client)
	defer locks.Close()
	var scheduler gocron.Locker = locker{locks: locks, least: time.Second}

	lock, err := scheduler.Lock(ctx, "nightly")
	fmt.Println(err)
	_, err = scheduler.Lock(ctx, "nightly") // another instance, at the same time
	fmt.Println(err)
	fmt.Println(lock.Unlock(ctx))
	_, err = scheduler.Lock(ctx, "nightly") // and one a moment later
	fmt.Println(err)
	time.Sleep(1100 * time.Millisecond)
	lock, err = scheduler.Lock(ctx, "nightly") // the next run
	fmt.Println(err, lock.Unlock(ctx))
	// Output:
	// <nil>
	// redislock: not obtained
	// <nil>
	// redislock: not obtained
	// <nil> <nil>
}
