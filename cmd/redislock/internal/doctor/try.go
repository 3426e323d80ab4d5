package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/internal/keyname"
)

const (
	clockLimit  = 500 * time.Millisecond // the difference of two clocks from which doctor warns
	pingLimit   = 200                    // how often a server is asked at most
	pingTime    = time.Second            // and for how long
	comfortable = 20                     // how many slow round trips a ttl should have time for
	tryTTL      = 10 * time.Second       // of the lock that is tried
	lineTime    = 50 * time.Millisecond  // how long doctor waits for the lock that it holds itself
	tryTime     = 5 * time.Second        // how long one of the tries may take
)

// askClock returns how far the clock of a server is ahead of this one, and how long the answer took: the fastest of five, as
// of half a round trip after the question.
func askClock(ctx context.Context, server *redis.Client) (ahead, took time.Duration, err error) {
	for i := range 5 {
		sent := time.Now()
		there, err := server.Time(ctx).Result()
		if err != nil {
			return 0, 0, err
		}
		if trip := time.Since(sent); i == 0 || trip < took {
			took, ahead = trip, there.Sub(sent.Add(trip/2)).Round(time.Millisecond)
		}
	}
	return ahead, took, nil
}

func apart(ahead time.Duration, other string) string {
	if ahead < 0 {
		return fmt.Sprintf("%v behind %s", -ahead, other)
	}
	return fmt.Sprintf("%v ahead of %s", ahead, other)
}

// within is how near two clocks certainly are, if asking took that long.
func within(ahead, took time.Duration) time.Duration {
	return max(ahead.Abs(), took/2+time.Millisecond).Round(time.Millisecond)
}

// clock compares the clock of a server with this machine's.
func (d *doctor) clock(ctx context.Context, server *redis.Client) finding {
	ahead, took, err := askClock(ctx, server)
	switch {
	case err != nil:
		return isUnknown.says(fmt.Sprintf("TIME failed (%v)", err), "waiting and fencing tokens need the clock of the server",
			d.grant("+time"))
	case ahead.Abs() >= clockLimit+took/2:
		return isWarning.says(apart(ahead, "this machine"), "locks are safe, because they use durations; but after a failover to "+
			"a clock that is behind, fencing tokens fall and lines lose their order, and times in metadata mislead", ntp)
	}
	return ok("within %v of this machine", within(ahead, took))
}

const ntp = "run NTP on both machines; timedatectl status says whether it does"

// replicaClocks compares the clocks of replicas with that of their master: keys expire by the clock of the current master.
func (d *doctor) replicaClocks(ctx context.Context, server *redis.Client, f facts) (all []finding) {
	for _, addr := range f.replicaAddrs() {
		here, tookHere, err := askClock(ctx, server)
		if err != nil {
			return all // the check of the master's own clock says so
		}
		replica := d.target.Neighbor(server, addr)
		there, took, err := askClock(ctx, replica)
		_ = replica.Close()
		ahead, limit := there-here, clockLimit+took/2+tookHere/2
		c := ok("%s is within %v of its master", addr, within(ahead, took+tookHere))
		switch found := addr + " is " + apart(ahead, "its master"); {
		case err != nil:
			c = isUnknown.says(fmt.Sprintf("%s does not answer (%v)", addr, err),
				"if it becomes the master and its clock is ahead, locks expire early",
				"compare the output of TIME on both servers")
		case ahead >= limit:
			c = isWarning.says(found, "when it becomes the master, each lock expires that much early, while somebody holds it", ntp)
		case ahead <= -limit:
			c = isWarning.says(found, "when it becomes the master, locks last that much longer, fencing tokens may fall, "+
				"and lines lose their order", ntp)
		}
		all = append(all, c.as("replica clock"))
	}
	return all
}

// latency compares round trips with the ttl. No ACL forbids HELLO, and any answer will do, also an error.
func (d *doctor) latency(ctx context.Context, server *redis.Client) finding {
	var trips []time.Duration
	for begin := time.Now(); len(trips) < pingLimit && (len(trips) < 5 || time.Since(begin) < pingTime); {
		sent := time.Now()
		err := server.Do(ctx, "hello", cmp.Or(server.Options().Protocol, 3)).Err()
		if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
			return isUnknown.says(fmt.Sprintf("no answer (%v)", err), "slow answers delay renewals", "run redislock doctor again")
		}
		trips = append(trips, time.Since(sent))
	}
	slices.Sort(trips)
	median, high := trips[len(trips)/2], trips[(len(trips)*99-1)/100]
	found := fmt.Sprintf("median %v, 99 %% within %v", median.Round(10*time.Microsecond), high.Round(10*time.Microsecond))
	do := fmt.Sprintf("use --ttl %v or more, or a Redis that is nearer",
		max(comfortable*high, locking.LeastTTL).Round(100*time.Millisecond))
	switch share := d.opt.ttl / max(high, 1); {
	case share < 3:
		return isBad.says(found, fmt.Sprintf("a ttl of %v ends before a renewal arrives", d.opt.ttl), do)
	case share < comfortable:
		return isWarning.says(found, fmt.Sprintf("that is a large part of a ttl of %v", d.opt.ttl), do)
	}
	return ok("%s", found)
}

// tryLock acquires, renews, waits, inspects and releases, as this user and on that server.
func (d *doctor) tryLock(ctx context.Context, server *redis.Client) finding {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	keys := d.tryKeys(ctx, server)
	began := time.Now()
	step, err := d.steps(ctx, keys)
	if err == nil {
		took := time.Since(began).Round(10 * time.Microsecond)
		return ok("acquired, renewed, waited for, inspected and released two keys in %v", took).as("locking")
	}
	v := isBad
	if step == stepWait || step == stepInspect {
		v = isWarning
	}
	why, do := "locks do not work without that", "see the log of the server"
	text := err.Error()
	switch {
	case strings.Contains(text, "NOPERM") && strings.Contains(text, "key"):
		v, why = isUnknown, "this user is not allowed to use the keys that doctor tried"
		do = "run redislock doctor --key PREFIX with a prefix of its keys, or " + d.grant("~"+d.opt.key+"*")
	case strings.Contains(text, "NOPERM"),
		strings.Contains(text, "can't run this command"), strings.Contains(text, "has no permissions to run"):
		why = "this user is not allowed to run the commands in the library's scripts"
		do = d.grant("+@read +@write +@scripting +time +publish +subscribe")
	case redis.IsReadOnlyError(err):
		why, do = "it is a replica", "connect to the master, which ROLE names"
	case strings.Contains(text, "OOM"):
		why, do = "there is no memory left", "raise maxmemory (CONFIG SET maxmemory), or delete other data"
	case errors.Is(err, context.DeadlineExceeded):
		why, do = "it does not answer", "see what blocks it with SLOWLOG GET and CLIENT LIST; SCRIPT KILL ends a script"
	}
	return v.says(fmt.Sprintf("cannot %s (%s)", step, plainly(err)), why, do).as("locking")
}

// The steps of a try that locks can do without.
const (
	stepWait    = "wait in line"
	stepInspect = "inspect"
)

// steps goes through the life of a lock, and returns the step that failed.
func (d *doctor) steps(ctx context.Context, keys []string) (step string, err error) {
	lock, err := d.locks.ObtainMulti(ctx, keys, tryTTL, nil)
	if err != nil {
		return "acquire", err
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }() // a released lock is left alone
	if err := lock.Refresh(ctx, tryTTL, nil); err != nil {
		return "renew", err
	}
	short, cancel := context.WithTimeout(ctx, lineTime)
	defer cancel()
	second, err := d.locks.ObtainMulti(short, keys, tryTTL, &redislock.Options{Queue: true})
	if err == nil {
		return "keep a lock", errors.Join(errors.New("it was granted twice"), second.Release(context.WithoutCancel(ctx)))
	}
	var answer redis.Error
	if !errors.Is(err, redislock.ErrNotObtained) || errors.As(err, &answer) {
		return stepWait, err
	}
	if _, err := d.locks.Inspect(ctx, keys...); err != nil {
		return stepInspect, err
	}
	return "release", lock.Release(ctx)
}

func (d *doctor) grant(rights string) string { return "ACL SETUSER " + d.user + " " + rights }

// plainly returns the answer of Redis without the operation and the keys.
func plainly(err error) string {
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return answer.Error()
	}
	return strings.TrimPrefix(err.Error(), "redislock: ")
}

// tryKeys returns two keys that nobody holds and that are on that server.
func (d *doctor) tryKeys(ctx context.Context, server *redis.Client) []string {
	for {
		tag := d.opt.key + "{" + rand.Text() + "}"
		if cluster, ok := d.client.(*redis.ClusterClient); ok {
			if master, err := cluster.MasterForKey(ctx, tag); err == nil && master.Options().Addr != server.Options().Addr {
				continue
			}
		}
		return []string{tag, tag + ":2"}
	}
}

// tryMessages checks whether releases can wake waiters: it subscribes to a channel and publishes to it.
func (d *doctor) tryMessages(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	what, do := d.exchange(ctx)
	if what != "" {
		return isWarning.says(what, "releases do not wake waiters, which then may notice a second later", do).as("messages")
	}
	return ok("releases wake waiters").as("messages")
}

func (d *doctor) exchange(ctx context.Context) (what, do string) {
	channel := keyname.InboxPrefix + rand.Text()
	subscription := d.client.Subscribe(ctx, channel)
	defer func() { _ = subscription.Close() }()
	const all = keyname.InboxPrefix + "*"
	if _, err := subscription.ReceiveTimeout(ctx, tryTime/2); err != nil {
		return fmt.Sprintf("cannot subscribe to %s (%s)", all, plainly(err)), d.grant("+subscribe &" + all)
	}
	if err := d.client.Publish(ctx, channel, "doctor").Err(); err != nil {
		return fmt.Sprintf("cannot publish to %s (%s)", all, plainly(err)), d.grant("+publish &" + all)
	}
	if _, err := subscription.ReceiveTimeout(ctx, tryTime/2); err != nil {
		return "no message arrives (" + plainly(err) + ")", "check whether a proxy in front of Redis holds messages back"
	}
	return "", ""
}
