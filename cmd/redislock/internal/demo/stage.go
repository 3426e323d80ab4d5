package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/keyname"
)

const (
	demoLimit = 14 * time.Second // for the story
	tidyLimit = ttl              // for tidying up: after that, no lock is left; Client.Close may take a second more
)

var errSlow = fmt.Errorf("gave up after %v: this Redis answers too slowly for the story", demoLimit)

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

func (d *demo) run(ctx context.Context, target *connect.Target, named bool) (err error) {
	story, cancel := context.WithTimeoutCause(ctx, demoLimit, errSlow)
	defer cancel()
	where := "on a Redis in memory"
	if named {
		if d.redis, err = target.Connect(story); err != nil {
			return err
		}
		where = "on the Redis at " + target.Where
	} else {
		_, client, end := inMemory()
		defer end()
		d.redis = client
	}
	defer func() { _ = d.redis.Close() }()
	if err := d.refuseToDisturb(story); err != nil {
		return err
	}
	d.locks = redislock.New(d.redis)
	d.title("redislock demo", "Two workers share three resources of a shop, "+where+".")
	err = play(story, d.allOrNothing, d.whoHoldsWhat, d.aLease, d.nextOneIn, d.keptAlive, d.aHolderHangs, d.lastDefence,
		d.readersAndAWriter)
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

// play plays scenes, with a pause after each. A scene ends the story with must, check or pause.
func play(ctx context.Context, scenes ...func(context.Context)) (err error) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case failure:
			err = end.error
		default:
			panic(end)
		}
	}()
	for _, scene := range scenes {
		scene(ctx)
		pause(ctx, beat)
	}
	return nil
}

type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func check(ok bool, format string, args ...any) {
	if !ok {
		must(unexpected(format, args...))
	}
}

// pause waits for d. The end of ctx ends the story.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		must(context.Cause(ctx))
	}
}

func (d *demo) refuseToDisturb(ctx context.Context) error {
	for _, key := range []string{order, stock, account, catalog, fence} {
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
		return locking.Insist(ctx, try, func(why error) { d.printf("\nStill trying to tidy up: %v\n", why) })
	}
	d.waiting.Wait()
	for _, lock := range d.held {
		if err := insist(lock.Release); err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
			return fmt.Errorf("left keys behind that expire within %v, and %s: %w", ttl, fence, err)
		}
	}
	_ = d.locks.Close() // waits for abandoned calls; after that, nothing writes the counter any more
	var left int64
	err := insist(func(ctx context.Context) (err error) {
		if err = d.redis.Del(ctx, fence).Err(); err == nil {
			left, err = d.redis.Exists(ctx, order, stock, account, catalog, keyname.HouseOf(catalog), fence).Result()
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("may have left the key %s behind: %w", fence, err)
	case left > 0:
		return unexpected("%d keys are left, after every lock was released", left)
	}
	return nil
}

func (d *demo) keep(lock *redislock.Lock) *redislock.Lock {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = append(d.held, lock)
	return lock
}

func options(worker string, inLine bool) *redislock.Options {
	what := map[string]string{checkout: "order 7", restock: "stock 42", shop: "catalog"}
	return &redislock.Options{Queue: inLine, Metadata: worker + ", " + what[worker], FenceKey: fence}
}

type grant struct {
	lock *redislock.Lock
	err  error
	at   time.Time
}

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

func (d *demo) inspect(ctx context.Context, keys ...string) []redislock.Status {
	found, err := d.locks.Inspect(ctx, keys...)
	must(err)
	return found
}

func remaining(ctx context.Context, lock *redislock.Lock) time.Duration {
	left, err := lock.TTL(ctx)
	must(err)
	return left
}

// showHolders prints who holds each resource, and checks that lock holds its keys and nobody holds the others.
func (d *demo) showHolders(ctx context.Context, lock *redislock.Lock) {
	t := &term.Table{Columns: []term.Column{{Name: "KEY"}, {Name: "HOLDER"}, {Name: "LEFT"}, {Name: "METADATA"}}}
	for _, status := range d.inspect(ctx, order, stock, account) {
		want, colour := "", term.Faint
		holder, left := "(free)", ""
		if slices.Contains(lock.Keys(), status.Key) {
			who, _, _ := strings.Cut(status.Metadata, ",")
			want, colour = lock.Token(), colours[who]
			holder, left = status.Token, fmt.Sprintf("%.1f s", status.TTL.Seconds())
		}
		check(status.Token == want, "%s is held by %q instead of %q", status.Key, status.Token, want)
		t.Rows = append(t.Rows, []term.Cell{{Text: status.Key, Colour: colour}, {Text: holder, Colour: colour},
			{Text: left, Colour: colour}, {Text: status.Metadata, Colour: colour}})
	}
	d.table(t)
}

func unexpected(format string, args ...any) error {
	return fmt.Errorf("this should not happen: "+format, args...)
}

// narrator prints a story: scenes, lines with the time and the speaker, tables, bars. It belongs to one goroutine.
type narrator struct {
	term.Screen // without a size: nothing is cut

	out    io.Writer
	start  time.Time
	number int         // of the scene
	broken func(error) // called when a write has failed
}

func newNarrator(out io.Writer, screen term.Screen, broken func(error)) *narrator {
	return &narrator{Screen: term.Screen{Coloured: screen.Coloured}, out: out, start: time.Now(), broken: broken}
}

var colours = map[string]string{checkout: term.Cyan, restock: term.Yellow, shop: term.Pink}

func (n *narrator) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(n.out, format, args...); err != nil {
		n.broken(err)
	}
}

func (n *narrator) title(text, where string) {
	n.printf("\n%s\n%s\n", n.Paint(term.Bold, text), n.Paint(term.Faint, where))
}

func (n *narrator) scene(title, text string) {
	n.number++
	n.printf("\n%s\n   %s\n\n", n.Paint(term.Bold, fmt.Sprintf("%d  %s", n.number, title)), n.Paint(term.Faint, text))
}

// says, gets and fails are a line each: a plain one, one of success and one of refusal.
func (n *narrator) says(who, format string, args ...any) {
	n.line(who, term.Plain, " ", format, args...)
}
func (n *narrator) gets(who, format string, args ...any) {
	n.line(who, term.Green, "✓", format, args...)
}
func (n *narrator) fails(who, format string, args ...any) {
	n.line(who, term.Red, "✗", format, args...)
}

func (n *narrator) line(who, colour, mark, format string, args ...any) {
	n.printf("%s  %s %s %s\n", n.Paint(term.Faint, fmt.Sprintf("%7.2f s", n.at(time.Now()))),
		n.Paint(colours[who], fmt.Sprintf("%-8s", who)),
		n.Paint(colour, mark), fmt.Sprintf(format, args...))
}

func (n *narrator) at(t time.Time) float64 { return t.Sub(n.start).Seconds() }

func seconds(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }

const barWidth = 25

func (n *narrator) bar(left, whole time.Duration) string {
	full := min(max(int(float64(barWidth)*left.Seconds()/whole.Seconds()+0.5), 0), barWidth)
	return n.Paint(term.Green, strings.Repeat("█", full)) + n.Paint(term.Faint, strings.Repeat("░", barWidth-full))
}

func (n *narrator) table(t *term.Table) {
	t.Columns = append([]term.Column{{Name: " "}}, t.Columns...)
	for i, cells := range t.Rows {
		t.Rows[i] = append([]term.Cell{{}}, cells...)
	}
	if err := t.Write(n.out, n.Screen, true); err != nil {
		n.broken(err)
	}
}
