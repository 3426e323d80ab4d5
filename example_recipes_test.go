package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
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
	waitInLine(ctx, locks, "leader", 1)
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

// withConnection waits for one of most permits, and calls fn with a new connection. On all machines together, there are no
// more connections than that at any time.
func withConnection(
	ctx context.Context, locks *redislock.Client, most int,
	dial func(context.Context) (net.Conn, error), fn func(context.Context, net.Conn) error,
) error {
	permit := &redislock.Options{Queue: true, Permits: map[string]int{"connections": most}}
	return locks.Do(ctx, []string{"connections"}, 10*time.Second, permit, func(ctx context.Context) error {
		conn, err := dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })() // also when the permit is lost
		return fn(ctx, conn)
	})
}

func Example_connectionPool() {
	ctx, client := setUp()
	locks := redislock.New(client)
	defer locks.Close()
	var mu sync.Mutex
	open, peak := 0, 0
	add := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		open += n
		peak = max(peak, open)
	}
	dial := func(context.Context) (net.Conn, error) {
		conn, _ := net.Pipe() // in a program, a net.Dialer
		return conn, nil
	}

	var callers sync.WaitGroup
	for range 9 {
		callers.Go(func() {
			err := withConnection(ctx, locks, 3, dial, func(context.Context, net.Conn) error {
				add(1)
				defer add(-1)
				time.Sleep(20 * time.Millisecond)
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	callers.Wait()
	fmt.Println("at most", peak, "at a time")
	// Output: at most 3 at a time
}

// read runs fn as a reader. Any number of readers run at the same time.
func read(ctx context.Context, locks *redislock.Client, fn func(context.Context) error) error {
	reader := &redislock.Options{Queue: true, Shared: []string{"release"}}
	return locks.Do(ctx, []string{"release"}, 10*time.Second, reader, fn)
}

// deploy runs fn when the readers that have come before it have ended. Readers that come later wait for it.
func deploy(ctx context.Context, locks *redislock.Client, fn func(context.Context) error) error {
	return locks.Do(ctx, []string{"release"}, 10*time.Second, &redislock.Options{Queue: true}, fn)
}

func Example_deployment() {
	ctx, client := setUp()
	locks := redislock.New(client)
	defer locks.Close()
	var jobs sync.WaitGroup
	started, finish := make(chan bool), make(chan bool)
	for range 2 {
		jobs.Go(func() {
			_ = read(ctx, locks, func(context.Context) error {
				started <- true
				<-finish
				fmt.Println("a reader ends")
				return nil
			})
		})
	}
	<-started
	<-started // both read
	jobs.Go(func() {
		_ = deploy(ctx, locks, func(context.Context) error {
			fmt.Println("the deployment runs")
			return nil
		})
	})
	waitInLine(ctx, locks, "release", 1)
	jobs.Go(func() {
		_ = read(ctx, locks, func(context.Context) error {
			fmt.Println("a later reader runs")
			return nil
		})
	})
	waitInLine(ctx, locks, "release", 2)
	close(finish)
	jobs.Wait()

	err := read(ctx, locks, func(ctx context.Context) error {
		return deploy(ctx, locks, func(context.Context) error { return nil })
	})
	fmt.Println("inside of a reader:", errors.Is(err, redislock.ErrInvalid))
	// Output:
	// a reader ends
	// a reader ends
	// the deployment runs
	// a later reader runs
	// inside of a reader: true
}

// waitInLine returns when so many wait in line for key.
func waitInLine(ctx context.Context, locks *redislock.Client, key string, many int) {
	for waiters := 0; waiters < many; time.Sleep(time.Millisecond) {
		found, err := locks.Inspect(ctx, key)
		if err != nil {
			log.Fatal(err)
		}
		waiters = found[0].Waiters
	}
}

// export runs fn if no other export of that customer runs, and fewer than most exports in all, on all machines together.
// Otherwise it returns ErrNotObtained at once.
func export(
	ctx context.Context, locks *redislock.Client, customer string, most int, fn func(context.Context) error,
) error {
	keys := []string{"exports", "exports:" + customer}
	return locks.Do(ctx, keys, 10*time.Second, &redislock.Options{Permits: map[string]int{"exports": most}}, fn)
}

func Example_atMostSoManyJobs() {
	ctx, client := setUp()
	locks := redislock.New(client)
	err := export(ctx, locks, "acme", 2, func(context.Context) error {
		again := export(ctx, redislock.New(client), "acme", 2, func(context.Context) error { return nil }) // another machine
		fmt.Println("acme once more:", again)
		return export(ctx, redislock.New(client), "initech", 2, func(context.Context) error {
			third := export(ctx, redislock.New(client), "hooli", 2, func(context.Context) error { return nil })
			fmt.Println("a third one:", third)
			return nil
		})
	})
	fmt.Println("two:", err)
	// Output:
	// acme once more: redislock: not obtained
	// a third one: redislock: not obtained
	// two: <nil>
}

// transfer calls fn under the locks of two accounts. It learns of the second one only while it holds the first one. So two
// transfers may wait for each other. Then the one that came last gives back its first lock, and begins again.
func transfer(
	ctx context.Context, locks *redislock.Client, from string, find func(context.Context) (to string, err error),
	fn func(context.Context) error,
) error {
	inLine := &redislock.Options{Queue: true}
	for {
		err := locks.Do(ctx, []string{from}, 10*time.Second, inLine, func(ctx context.Context) error {
			to, err := find(ctx)
			if err != nil {
				return err
			}
			return locks.Do(ctx, []string{to}, 10*time.Second, inLine, fn)
		})
		if !errors.Is(err, redislock.ErrDeadlock) {
			return err
		}
	}
}

func Example_lockInsideLock() {
	ctx, client := setUp()
	locks := redislock.New(client)
	defer locks.Close()
	var first, all sync.WaitGroup
	first.Add(2)
	move := func(from, to string) {
		meet := sync.OnceFunc(func() {
			first.Done()
			first.Wait() // both hold their first lock
		})
		find := func(context.Context) (string, error) {
			meet()
			return to, nil
		}
		err := transfer(ctx, locks, from, find, func(context.Context) error { return nil })
		fmt.Println("done:", err)
	}
	all.Go(func() { move("account:1", "account:2") })
	all.Go(func() { move("account:2", "account:1") })
	all.Wait()
	// Output:
	// done: <nil>
	// done: <nil>
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
