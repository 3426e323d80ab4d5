package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
)

// lag makes a replica lag: it stands still, and what the master writes from now on is behind so much that no buffer of the
// machine holds it. So the replica never gets it if the master dies. The replica must be resumed.
func lag(master, replica *redistest.Server) error {
	if err := replica.Pause(); err != nil {
		return err
	}
	const mega = 1 << 20
	text := strings.Repeat("x", mega)
	for range 16 { // a publication is replicated, and writes no key
		if err := ask(master, "publish", "lag", text); err != nil {
			return err
		}
	}
	return nil
}

// crash kills the master. With a guard, its replica lags, and the old master, when it comes back, at once follows the new
// one, which takes no writes without a replica.
func (t *sentinel) crash(ctx context.Context, master, replica *redistest.Server, f plan.Fault) (harm Harm, err error) {
	harm.Everything = true
	if t.guard.MaxTTL > 0 {
		err = lag(master, replica)
		wait(ctx, f.For)
		if err = errors.Join(err, master.Kill(), replica.Resume()); err != nil {
			return harm, errors.Join(err, master.Restart())
		}
	} else if err := master.Kill(); err != nil {
		return harm, err
	}
	harm.Back, err = t.taken(master)
	err = errors.Join(err, master.Restart())
	if err == nil && t.guard.MaxTTL > 0 {
		err = follow(master, replica)
	}
	return harm, errors.Join(err, t.settled())
}

// wake stops the master, and lets it go on some time after the replica has taken over.
func (t *sentinel) wake(ctx context.Context, master, replica *redistest.Server, f plan.Fault) (harm Harm, err error) {
	harm.Everything = true
	if err := master.Pause(); err != nil {
		return harm, err
	}
	harm.Back, err = t.taken(master)
	wait(ctx, f.For)
	err = errors.Join(err, master.Resume())
	if err == nil {
		time.Sleep(700 * time.Millisecond) // it goes on as a master
		err = follow(master, replica)
	}
	return harm, errors.Join(err, t.settled())
}

// isolate cuts the network between the master and its replica, which takes over. Meanwhile, both take writes without a
// replica, so the old master goes on with its clients until f.For is over. That may be longer than the guard allows for.
func (t *sentinel) isolate(ctx context.Context, master, replica *redistest.Server, f plan.Fault) (harm Harm, err error) {
	harm.Everything = true
	l, err := newLink(master.Addr())
	if err != nil {
		return harm, err
	}
	defer l.close()
	for _, s := range t.data() {
		err = errors.Join(err, ask(s, "config", "set", "min-replicas-to-write", "0"))
	}
	defer func() { err = errors.Join(err, t.refuseAlone()) }()
	err = errors.Join(err, ask(replica, "replicaof", "127.0.0.1", l.port()))
	if err == nil {
		err = eventually(3*time.Second, func() error { return says(replica, "master_link_status:up") })
	}
	if err == nil {
		harm.Unguarded, err = t.failover(f) // if it was sent, nobody knows yet for how long the old master will go on
	}
	if err != nil {
		return harm, errors.Join(err, follow(replica, master), t.settled())
	}
	before := time.Now() // the last time at which the replica was not a master yet
	err = eventually(15*time.Second, func() error {
		now := time.Now()
		err := says(replica, "role:master")
		if err != nil {
			before = now
		}
		return err
	})
	if err != nil { // the sentinels have given up
		return harm, errors.Join(err, follow(replica, master), t.settled())
	}
	harm.Back, err = lookSoon(replica)
	wait(ctx, f.For)
	deposed := follow(master, replica)
	harm.Unguarded = deposed != nil || time.Since(before) > t.guard.Deposed
	_, taken := t.taken(master)
	return harm, errors.Join(err, deposed, taken, t.settled())
}

// follow makes a server the replica of another one.
func follow(s, master *redistest.Server) error {
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		return err
	}
	return ask(s, "replicaof", host, port)
}

// refuseAlone makes both servers refuse writes without a replica that has answered in the last second, and keep that setting
// over a restart.
func (t *sentinel) refuseAlone() error {
	var errs []error
	for _, s := range t.data() {
		for name, value := range map[string]string{"min-replicas-to-write": "1", "min-replicas-max-lag": "1"} {
			errs = append(errs, ask(s, "config", "set", name, value))
		}
		errs = append(errs, ask(s, "config", "rewrite"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the servers could not be set up: %w", err)
	}
	return nil
}
