package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/worker"
)

// sentinel is a master with a replica, and three sentinels.
type sentinel struct {
	*redistest.Sentinel

	guard worker.Guard

	one sync.Mutex // held during a fault, because two at once could leave no server with the data
}

func startSentinel(guard worker.Guard) (Topology, error) {
	s, err := redistest.StartSentinel()
	if err != nil {
		return nil, err
	}
	t := &sentinel{Sentinel: s, guard: guard}
	for _, one := range t.Sentinels() { // so that a busy machine does not look like a dead server
		if err := ask(one, "sentinel", "set", t.MasterName(), "down-after-milliseconds", "3000"); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if guard.MaxTTL > 0 {
		if err := t.refuseAlone(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return t, nil
}

func (t *sentinel) Endpoint() worker.Endpoint {
	return worker.Endpoint{Topology: "sentinel", Addrs: t.Addrs(), Master: t.MasterName(), Guard: t.guard}
}

func (t *sentinel) data() []*redistest.Server { return []*redistest.Server{t.Master(), t.Replica()} }

func (t *sentinel) Servers() []*redistest.Server { return append(t.data(), t.Sentinels()...) }

func (t *sentinel) Holders() []*redistest.Server {
	if master, _, err := t.roles(); err == nil {
		return []*redistest.Server{master}
	}
	return nil
}

// roles returns the server that the sentinels send clients to, and the other one.
func (t *sentinel) roles() (master, replica *redistest.Server, err error) {
	for _, s := range t.Sentinels() {
		var addr []string
		client := redis.NewSentinelClient(&redis.Options{Addr: s.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1})
		addr, err = client.GetMasterAddrByName(context.Background(), t.MasterName()).Result()
		client.Close()
		if err == nil && len(addr) == 2 {
			if net.JoinHostPort(addr[0], addr[1]) == t.Master().Addr() {
				return t.Master(), t.Replica(), nil
			}
			return t.Replica(), t.Master(), nil
		}
	}
	return nil, nil, errors.Join(errors.New("no sentinel knows the master"), err)
}

func (t *sentinel) Inject(ctx context.Context, f plan.Fault) (Harm, error) {
	t.one.Lock()
	defer t.one.Unlock()
	master, replica, err := t.roles()
	if err != nil {
		return Harm{}, err
	}
	switch f.Kind {
	case plan.CrashMaster: // replication is asynchronous, and the new master may lack the last writes
		return t.crash(ctx, master, replica, f)
	case plan.WakeMaster:
		return t.wake(ctx, master, replica, f)
	case plan.IsolateMaster:
		return t.isolate(ctx, master, replica, f)
	case plan.FlushAll, plan.RestartEmpty:
		return forget(ctx, master, f)
	case plan.Failover: // no server pauses, and the old master takes writes until it hears of the new one
		sent, err := t.failover(f)
		if !sent {
			return Harm{}, err
		}
		back, taken := t.taken(master)
		return Harm{Everything: true, Back: back}, errors.Join(err, taken, t.settled())
	}
	return Harm{}, single(ctx, master, f)
}

// failover asks a sentinel for a failover. A sentinel that refuses does nothing, but one that does not answer may do it.
func (t *sentinel) failover(f plan.Fault) (sent bool, err error) {
	err = ask(t.Sentinels()[f.Pick%3], "sentinel", "failover", t.MasterName())
	var refusal redis.Error
	return !errors.As(err, &refusal), err
}

// taken waits until another server is the master, and returns what that one has.
func (t *sentinel) taken(old *redistest.Server) (back Content, err error) {
	err = eventually(15*time.Second, func() error {
		master, _, err := t.roles()
		if err != nil || master == old {
			return fmt.Errorf("%s is still the master: %w", old.Addr(), err)
		}
		back, err = look(master)
		return err
	})
	return back, err
}

// settled waits until one server is the master, and the other one is its replica and in sync.
func (t *sentinel) settled() error {
	return eventually(30*time.Second, func() error {
		master, replica, err := t.roles()
		if err != nil {
			return err
		}
		for s, role := range map[*redistest.Server]string{master: "role:master", replica: "master_link_status:up"} {
			if err := says(s, role); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *sentinel) Need() int   { return 1 }
func (t *sentinel) Heal() error { return errors.Join(heal(t.data()), t.settled()) }
