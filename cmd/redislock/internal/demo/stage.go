package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/claim"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const (
	demoLimit = 12 * time.Second // for the story
	tidyLimit = ttl              // for tidying up: after that, no lock is left; Client.Close may take a second more
)

var errSlow = fmt.Errorf("gave up after %v: this Redis answers too slowly for the story", demoLimit)

// demo is one run of the demonstration.
type demo struct {
	*narrator

	redis redis.UniversalClient
	locks *redislock.Client

	first, second, third *redislock.Lock // the grants of the story
	restocking           <-chan grant    // the wait for the second of them

	waiting sync.WaitGroup // the workers that wait for a lock

	mu   sync.Mutex        // protects what follows
	held []*redislock.Lock // all that were acquired
}

// run plays the story, on the Redis that the flags name or on one in memory, and tidies up.
func (d *demo) run(ctx context.Context, target *connect.Target, named bool) (err error) {
	story, cancel := context.WithTimeoutCause(ctx, demoLimit, errSlow)
	defer cancel()
	where := "on a Redis in memory"
	if !named {
		_, client, end := inMemory()
		defer end()
		d.redis = client
	} else {
		d.redis, err = target.Connect(story)
		if err != nil {
			return err
		}
		defer func() { _ = d.redis.Close() }()
		where = "on the Redis at " + target.Where()
	}
	if err := d.refuseToDisturb(story); err != nil {
		return err
	}
	d.locks = redislock.New(d.redis)
	d.title("redislock demo", "Two workers share three resources of a shop, "+where+".")
	err = play(story, d.allOrNothing, d.whoHoldsWhat, d.aLease, d.nextOneIn, d.keptAlive, d.aHolderHangs, d.lastDefence)
	if story.Err() != nil {
		err = context.Cause(story)
	}
	cancel() // ends the waiting as well
	switch left := d.tidyUp(context.WithoutCancel(ctx)); {
	case err != nil && left != nil:
		return fmt.Errorf("%w; tidying up: %w", err, left)
	case left != nil:
		return left
	case err != nil:
		return fmt.Errorf("%w; no key is left behind", err)
	}
	d.printf("\nEvery lock is released, and the counter deleted: no key is left behind.\n")
	return context.Cause(ctx) // the last line may be lost
}

// inMemory returns an empty Redis inside this program, a client of it, and what ends both.
func inMemory() (server *miniredis.Miniredis, client *redis.Client, end func()) {
	server = miniredis.NewMiniRedis()
	server.ClockTTL(true) // its keys expire as time passes
	client = redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:0", // nobody dials it; without it go-redis looks a name up, which a bubble of synctest cannot
		Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
	})
	return server, client, func() {
		_ = client.Close()
		server.Close()
	}
}

// play plays scenes, with a pause after each. A scene returns an error as soon as something is not as it should be.
func play(ctx context.Context, scenes ...func(context.Context) error) error {
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			return err
		}
		if err := pause(ctx, beat); err != nil {
			return err
		}
	}
	return nil
}

// refuseToDisturb returns an error if a key of the story exists.
func (d *demo) refuseToDisturb(ctx context.Context) error {
	for _, key := range []string{order, stock, account, fence} {
		found, err := d.redis.Exists(ctx, key).Result()
		if err != nil {
			return err
		}
		if found > 0 {
			return fmt.Errorf("the key %s exists: wait for the other demo to end, or delete the key if there is none", key)
		}
	}
	return nil
}

// tidyUp releases every lock, deletes the counter, and checks that no key is left.
func (d *demo) tidyUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tidyLimit)
	defer cancel()
	insist := func(try func(context.Context) error) error {
		return claim.Insist(ctx, try, func(why error) { d.printf("\nStill trying to tidy up: %v\n", why) })
	}
	d.waiting.Wait()
	for _, lock := range d.held {
		if err := insist(lock.Release); err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
			return fmt.Errorf("left keys behind that expire within %v, and %s: %w", ttl, fence, err)
		}
	}
	_ = d.locks.Close() // waits for abandoned calls; after that, nothing writes the counter any more
	if err := insist(func(ctx context.Context) error { return d.redis.Del(ctx, fence).Err() }); err != nil {
		return fmt.Errorf("left the key %s behind: %w", fence, err)
	}
	var left int64
	err := insist(func(ctx context.Context) (err error) {
		left, err = d.redis.Exists(ctx, order, stock, account, fence).Result()
		return err
	})
	if err != nil {
		return err
	}
	if left > 0 {
		return unexpected("%d keys are left, after every lock was released", left)
	}
	return nil
}

// keep notes a lock, for tidyUp to release.
func (d *demo) keep(lock *redislock.Lock) *redislock.Lock {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = append(d.held, lock)
	return lock
}

// options are those of a worker's lock.
func options(worker string, inLine bool) *redislock.Options {
	what := map[string]string{checkout: "order 7", restock: "stock 42"}
	return &redislock.Options{
		Queue:    inLine,
		Metadata: worker + ", " + what[worker],
		FenceKey: fence,
	}
}

// grant is how a wait for a lock has ended.
type grant struct {
	lock *redislock.Lock
	err  error
	at   time.Time
}

// wait acquires keys in the background, in line.
func (d *demo) wait(ctx context.Context, worker string, keys []string, ttl time.Duration) <-chan grant {
	granted := make(chan grant, 1)
	d.waiting.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		lock, err := d.locks.ObtainMulti(ctx, keys, ttl, options(worker, true))
		granted <- grant{d.keep(lock), err, time.Now()}
	})
	return granted
}

// showLine says who waits for stock:42.
func (d *demo) showLine(ctx context.Context) error {
	found, err := d.locks.Inspect(ctx, stock)
	if err != nil {
		return err
	}
	if found[0].Waiters != 1 {
		return unexpected("restock waits for stock:42, and %d are in line for it", found[0].Waiters)
	}
	d.says(restock, "stands in line for stock:42, alone, since %.2f s", d.at(found[0].WaitingSince))
	return nil
}

// showHolders prints who holds each resource, and checks that lock holds its keys and nobody holds the others.
func (d *demo) showHolders(ctx context.Context, lock *redislock.Lock) error {
	found, err := d.locks.Inspect(ctx, order, stock, account)
	if err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{{Name: "KEY"}, {Name: "HOLDER"}, {Name: "LEFT"}, {Name: "METADATA"}}}
	for _, status := range found {
		want := ""
		if slices.Contains(lock.Keys(), status.Key) {
			want = lock.Token()
		}
		if status.Token != want {
			return unexpected("%s is held by %q instead of %q", status.Key, status.Token, want)
		}
		colour, texts := term.Faint, []string{status.Key, "(free)", "", ""}
		if status.Token != "" {
			who, _, _ := strings.Cut(status.Metadata, ",")
			left := fmt.Sprintf("%.1f s", status.TTL.Seconds())
			colour, texts = colourOf(who), []string{status.Key, status.Token, left, status.Metadata}
		}
		cells := make([]term.Cell, len(texts))
		for i, text := range texts {
			cells[i] = term.Cell{Text: text, Colour: colour}
		}
		t.Rows = append(t.Rows, cells)
	}
	d.table(t)
	return nil
}

// storage is what the locks protect. It knows nothing of locks.
type storage struct {
	highest int64 // the highest fencing token it has seen
}

// write reports whether the storage accepts a write with that fencing token.
func (s *storage) write(fence int64) bool {
	if fence < s.highest {
		return false
	}
	s.highest = fence
	return true
}

// pause waits for d. If ctx ends before, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unexpected returns an error for what should not happen.
func unexpected(format string, args ...any) error {
	return fmt.Errorf("this should not happen: "+format, args...)
}
