// Package topology starts the Redis servers of a torture run, and does to them what a plan says.
package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/worker"
)

// Names are the names of all topologies.
var Names = []string{"one", "memory", "sentinel", "cluster", "quorum"}

// Topology is one or more Redis servers on which locks are kept.
type Topology interface {
	// Endpoint says where the locks are.
	Endpoint() worker.Endpoint

	// Servers returns every server that clients may connect to.
	Servers() []*redistest.Server

	// Holders returns the servers that hold keys now. It may leave out one that does not answer.
	Holders() []*redistest.Server

	// Need returns how many servers must hold a key.
	Need() int

	// Inject does a fault of a server, and returns when that is over. ctx ends it early, healed. The error is for a fault that
	// could not be done.
	Inject(ctx context.Context, f plan.Fault) (Harm, error)

	// Heal makes every server run, and waits until they serve.
	Heal() error

	// Close ends every server.
	Close() error
}

// Harm is what a fault did that no lock can make up for: Redis may have forgotten what it acknowledged, or have ended leases
// early. Everything says that of all keys; otherwise it is true of Keys.
type Harm struct {
	Everything bool
	Keys       []string
}

// harm is Harm to all keys or to none.
func harm(everything bool) Harm { return Harm{Everything: everything} }

// Start starts a topology.
func Start(name string) (Topology, error) {
	switch name {
	case "one":
		// Written before a reply is sent, so that a SIGKILL loses nothing.
		return startOne(name, "appendonly yes", "appendfsync always")
	case "memory":
		return startOne(name)
	case "sentinel":
		return startSentinel()
	case "cluster":
		return startCluster()
	case "quorum":
		return startQuorum()
	}
	return nil, fmt.Errorf("there is no topology %q", name)
}

func init() { redis.SetLogger(silent{}) } // servers that are down are what this is about

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Connect returns a client for a few commands to a server, which gives up soon. The caller closes it.
func Connect(s *redistest.Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialTimeout: 300 * time.Millisecond,
		ReadTimeout: 500 * time.Millisecond, WriteTimeout: 500 * time.Millisecond,
	})
}

// ask sends one command to a server.
func ask(s *redistest.Server, args ...any) error {
	client := Connect(s)
	defer client.Close()
	return client.Do(context.Background(), args...).Err()
}

// single does a fault of one server that keeps what it has.
func single(ctx context.Context, s *redistest.Server, f plan.Fault) error {
	switch f.Kind {
	case plan.PauseServer:
		if err := s.Pause(); err != nil {
			return err
		}
		wait(ctx, f.For)
		return s.Resume()
	case plan.RestartServer:
		if err := s.Kill(); err != nil {
			return err
		}
		wait(ctx, f.For)
		return s.Restart()
	case plan.FlushScripts:
		return ask(s, "script", "flush", "sync")
	case plan.KillConnections:
		return ask(s, "client", "kill", "type", "normal", "skipme", "yes")
	case plan.KillSubscriptions:
		return ask(s, "client", "kill", "type", "pubsub")
	case plan.FullMemory:
		if err := ask(s, "config", "set", "maxmemory", "1"); err != nil {
			return err
		}
		wait(ctx, f.For)
		// A server that is down or paused just now must not stay full.
		for range 20 {
			if ask(s, "config", "set", "maxmemory", "0") == nil {
				return nil
			}
			wait(context.Background(), 200*time.Millisecond)
		}
		return errors.New("the memory stays full")
	}
	return fmt.Errorf("one server has no fault %q", f.Kind)
}

// heal makes a server run.
func heal(servers []*redistest.Server) error {
	var errs []error
	for _, s := range servers {
		if s.Pid() == 0 {
			errs = append(errs, s.Restart())
			continue
		}
		errs = append(errs, s.Resume())
		_ = ask(s, "config", "set", "maxmemory", "0") // sentinels know no such command
	}
	return errors.Join(errs...)
}

func addrs(servers []*redistest.Server) []string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

func closeAll(servers []*redistest.Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
