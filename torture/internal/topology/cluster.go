package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/worker"
)

// cluster is a Redis Cluster of three masters with a replica each.
type cluster struct {
	*redistest.Cluster

	one sync.Mutex // held during a fault, because a migration whose source dies needs a human
}

func startCluster() (Topology, error) {
	c, err := redistest.StartCluster(3, 1)
	if err != nil {
		return nil, err
	}
	return &cluster{Cluster: c}, nil
}

func (t *cluster) Endpoint() worker.Endpoint {
	return worker.Endpoint{Topology: "cluster", Addrs: t.Addrs()}
}

func (t *cluster) Servers() []*redistest.Server { return t.Nodes() }

func (t *cluster) Holders() []*redistest.Server {
	var masters []*redistest.Server
	for _, node := range t.Nodes() {
		if says(node, "role:master") == nil {
			masters = append(masters, node)
		}
	}
	return masters
}

// master returns the master of the keys of one group.
func (t *cluster) master(f plan.Fault) (*redistest.Server, string, error) {
	key := fmt.Sprintf("{%c}", 'a'+f.Pick%3)
	node, err := t.MasterOf(key)
	return node, key, err
}

func (t *cluster) Inject(ctx context.Context, f plan.Fault) (Harm, error) {
	t.one.Lock()
	defer t.one.Unlock()
	master, key, err := t.master(f)
	if err != nil {
		return Harm{}, err
	}
	switch f.Kind {
	case plan.CrashMaster: // replication is asynchronous, and the new master may lack the last writes
		if err := master.Kill(); err != nil {
			return harm(true), err
		}
		taken := eventually(15*time.Second, func() error {
			if _, err := t.MasterOf(key); err != nil {
				return err
			}
			return nil
		})
		return harm(true), errors.Join(taken, master.Restart(), t.Settle())
	case plan.Failover: // the old master pauses until the replica has everything
		replica, err := t.replicaOf(master)
		if err != nil {
			return Harm{}, err
		}
		if err := ask(replica, "cluster", "failover"); err != nil {
			return Harm{}, err
		}
		return Harm{}, t.Settle()
	case plan.MigrateSlot:
		return Harm{}, t.migrate(ctx, f, key)
	case plan.PauseServer: // for less time than the nodes take to give up a master
		f.For = min(f.For, time.Second)
	}
	return Harm{}, single(ctx, master, f)
}

// migrate moves a slot as a resharding does. New keys appear meanwhile, so it moves keys until none is left.
func (t *cluster) migrate(ctx context.Context, f plan.Fault, key string) error {
	m, err := t.BeginMigration(redistest.SlotOf(key))
	if err != nil {
		return err
	}
	wait(ctx, f.For)
	return eventually(10*time.Second, func() error {
		if err := m.MoveKeys(); err != nil {
			return err
		}
		return m.Finish()
	})
}

func (t *cluster) replicaOf(master *redistest.Server) (*redistest.Server, error) {
	port := fmt.Sprintf("master_port:%d", master.Port())
	for _, node := range t.Nodes() {
		if says(node, port) == nil {
			return node, nil
		}
	}
	return nil, fmt.Errorf("%s has no replica", master.Addr())
}

func (t *cluster) Need() int   { return 1 }
func (t *cluster) Heal() error { return errors.Join(heal(t.Nodes()), t.Settle()) }

// says returns nil if a server's INFO replication has the given line.
func says(s *redistest.Server, line string) error {
	client := Connect(s)
	defer client.Close()
	info, err := client.Info(context.Background(), "replication").Result()
	if err != nil {
		return err
	}
	for other := range strings.SplitSeq(info, "\n") {
		if strings.TrimSpace(other) == line {
			return nil
		}
	}
	return fmt.Errorf("%s does not say %s", s.Addr(), line)
}

// eventually calls check until it returns nil, or gives up after limit with the last error.
func eventually(limit time.Duration, check func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(30 * time.Millisecond) {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
