// Package demo is the command that shows how the library works, as a story of two workers.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
)

//go:embed help.txt
var help string

// The cast. The braces in the keys are a hash tag, which keeps the keys together on a Redis Cluster.
const (
	checkout = "checkout"
	restock  = "restock"
	shop     = "storage"

	prefix  = "{redislock-demo}:"
	order   = prefix + "order:7"
	stock   = prefix + "stock:42"
	account = prefix + "account:3"
	catalog = prefix + "catalog"
	fence   = prefix + "fence" // the counter of fencing tokens
)

const (
	ttl      = 5 * time.Second
	shortTTL = 1500 * time.Millisecond // of the lock that is to lapse
	patience = 6 * time.Second         // of a worker that waits
	beat     = 700 * time.Millisecond  // for the viewer to read
)

// New returns the command "demo".
func New(target *connect.Target) *cobra.Command {
	var quorum, guard bool
	cmd := cli.Describe(help, &cobra.Command{
		Use: "demo", Short: "Watch two workers share three resources, in ten seconds", Args: cli.FlagsOnly,
		RunE: cli.UntilSignal(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			ctx, end := context.WithCancelCause(ctx) // nobody reads any more, for example
			defer end(nil)
			n, named := newNarrator(target.Stdout, target.Screen(), end), cmd.Flags().Changed("redis")
			switch {
			case (quorum || guard) && named:
				return cli.Usagef("--quorum and --guard kill servers, so they work on their own in memory only; leave out --redis")
			case quorum && guard:
				return cli.Usagef("--quorum and --guard exclude each other")
			case guard:
				return (&guardDemo{narrator: n}).run(ctx)
			case quorum:
				return (&quorumDemo{narrator: n}).run(ctx)
			case target.IsQuorum():
				return cli.Usagef("demo does not work on a quorum of servers")
			}
			return (&demo{narrator: n}).run(ctx, target, named)
		}),
	})
	cmd.Flags().BoolVar(&quorum, "quorum", false, "show a lock on three servers of which one dies")
	cmd.Flags().BoolVar(&guard, "guard", false, "show a lock on a server that forgets it, without and with a guard")
	return cmd
}

func (d *demo) allOrNothing(ctx context.Context) {
	d.scene("All or nothing", "checkout needs order:7 and stock:42; restock needs stock:42 and account:3.")
	lock, err := d.locks.ObtainMulti(ctx, []string{order, stock}, ttl, options(checkout, false))
	must(err)
	d.first = d.keep(lock)
	d.gets(checkout, "locked order:7 and stock:42 together, for %s", seconds(ttl))

	lock, err = d.locks.ObtainMulti(ctx, []string{stock, account}, ttl, options(restock, false))
	d.keep(lock)
	check(errors.Is(err, redislock.ErrNotObtained), "restock asked for stock:42, which checkout holds; the error is: %v", err)
	d.fails(restock, "refused: stock:42 is taken (%v)", err)

	status := d.inspect(ctx, account)
	check(status[0].Token == "", "account:3 is half locked: %+v", status[0])
	d.says(restock, "nothing is half locked: account:3 is still free")
}

func (d *demo) whoHoldsWhat(ctx context.Context) {
	d.scene("Who holds what", "All keys of a lock hold the same token, and a note for people.")
	d.showHolders(ctx, d.first)
	value, err := d.redis.Get(ctx, stock).Result()
	must(err)
	check(value == d.first.Token()+" "+d.first.Metadata(), "GET %s returned %q", stock, value)
	d.printf("\n   In redis-cli a lock is a plain string:\n   > GET %s\n   %q\n", stock, value)
}

func (d *demo) aLease(ctx context.Context) {
	d.scene("A lock is a lease", "Redis deletes the keys when their time is up, unless they are refreshed.")
	d.restocking = d.wait(ctx, restock, []string{stock, account}, shortTTL)
	d.says(restock, "waits in line from here on, for %s at most", seconds(patience))

	before := ttl
	for range 3 {
		left := remaining(ctx, d.first)
		check(0 < left && left < before, "the remaining TTL went from %v to %v", before, left)
		before = left
		d.says(checkout, "%s  %.2f s left", d.bar(left, ttl), left.Seconds())
		pause(ctx, beat/2)
	}

	line := d.inspect(ctx, stock)[0]
	check(line.Waiters == 1, "restock waits for stock:42, and %d are in line for it", line.Waiters)
	d.says(restock, "stands in line for stock:42, alone, since %.2f s", d.at(line.WaitingSince))

	must(d.first.Refresh(ctx, ttl, nil))
	left, until := remaining(ctx, d.first), d.first.Until()
	check(left > before && time.Now().Before(until),
		"after Refresh the remaining TTL is %v, and the lock is valid until %v", left, until)
	d.gets(checkout, "%s  %.2f s left, by Refresh", d.bar(left, ttl), left.Seconds())
	d.says(checkout, "may rely on it until %.2f s (Lock.Until, on the safe side)", d.at(until))
}

func (d *demo) nextOneIn(ctx context.Context) {
	d.scene("A release lets the next one in", "A message wakes the first in line; nobody polls, nobody overtakes.")
	must(d.first.Release(ctx))
	released := time.Now()
	d.gets(checkout, "released order:7 and stock:42")

	granted := <-d.restocking
	must(granted.err)
	d.second = granted.lock
	d.gets(restock, "locked stock:42 and account:3, %d ms later", granted.at.Sub(released).Milliseconds())
	d.printf("\n")
	d.showHolders(ctx, d.second)
}

func (d *demo) keptAlive(ctx context.Context) {
	d.scene("Kept alive", "A kept lock is renewed in good time, and its ctx ends if it is lost.")
	held, stop := d.second.KeepAlive(ctx)
	defer stop()
	d.says(restock, "took its lock for %s only, and keeps it", seconds(shortTTL))
	end := d.second.Until()
	for range 3 {
		pause(held, 3*beat/4)
		left := remaining(ctx, d.second)
		d.says(restock, "%s  %.2f s left", d.bar(left, shortTTL), left.Seconds())
	}
	check(time.Now().After(end) && held.Err() == nil,
		"a kept lock has ended, or nothing is proven yet: %v", context.Cause(held))
	d.gets(restock, "still holds it, after its %s are over", seconds(shortTTL))
}

func (d *demo) aHolderHangs(ctx context.Context) {
	d.scene("A holder hangs", "restock neither keeps nor releases its lock: it expires.")
	until := d.second.Until()
	d.says(restock, "hangs; its lock is valid until %.2f s", d.at(until))
	d.says(checkout, "waits in line for order:7 and stock:42")

	granted := <-d.wait(ctx, checkout, []string{order, stock}, ttl)
	must(granted.err)
	check(!time.Now().Before(until), "checkout has stock:42, on which restock may rely until %v", until)
	d.third = granted.lock
	d.gets(checkout, "locked order:7 and stock:42")

	err := d.second.Refresh(ctx, shortTTL, nil)
	check(errors.Is(err, redislock.ErrNotObtained), "restock has lost its lock, and refreshed it; the error is: %v", err)
	d.says(restock, "wakes up; Lock.Until has passed, so it should stop here")
	d.fails(restock, "cannot refresh either (%v)", err)
}

func (d *demo) readersAndAWriter(ctx context.Context) {
	d.scene("Readers and a writer", "checkout and restock read the catalog together; storage wants to write it.")
	var readers []*redislock.Lock
	for _, worker := range []string{checkout, restock} {
		lock, err := d.locks.Obtain(ctx, catalog, ttl, &redislock.Options{Metadata: worker, Shared: []string{catalog}})
		must(err)
		readers = append(readers, d.keep(lock))
		d.gets(worker, "shares catalog")
	}
	status := d.inspect(ctx, catalog)[0]
	check(status.HolderCount == 2, "%d hold catalog, which two share", status.HolderCount)
	writing := d.wait(ctx, shop, []string{catalog}, ttl)
	d.says(shop, "wants catalog alone, and waits in line behind %d holders", status.HolderCount)
	for i, worker := range []string{checkout, restock} {
		pause(ctx, beat/2)
		check(len(writing) == 0, "the storage holds catalog, which %s shares", worker)
		must(readers[i].Release(ctx))
		d.says(worker, "released it")
	}
	granted := <-writing
	must(granted.err)
	d.gets(shop, "locked catalog alone")
	must(granted.lock.Release(ctx))
}

func (d *demo) lastDefence(context.Context) {
	d.scene("The last defence", "Fencing tokens rise from grant to grant, and the storage refuses lower ones.")
	first, second, third := d.first.FenceToken(), d.second.FenceToken(), d.third.FenceToken()
	d.says(checkout, "1st grant, fencing token %d", first)
	d.says(restock, "2nd grant, fencing token %d", second)
	d.says(checkout, "3rd grant, fencing token %d", third)
	check(first < second && second < third, "the fencing tokens do not rise")

	highest := int64(0) // that the storage has seen; it knows nothing of locks
	write := func(fence int64) (accepted bool) {
		accepted, highest = fence >= highest, max(highest, fence)
		return accepted
	}
	check(write(third), "the storage refused the holder of the lock")
	d.gets(shop, "accepted the write of checkout, and remembers its token")
	check(!write(second), "the storage took the late write of restock")
	d.fails(shop, "refused the late write of restock: its token is lower")
}
