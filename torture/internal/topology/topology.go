// Package topology starts the Redis servers of a torture run, and does the faults of a plan to them.
package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/worker"
)

// Names are the names of all topologies.
var Names = []string{
	"one", "memory", "sentinel", "cluster", "quorum", "memory+guard", "sentinel+guard", "quorum+guard",
}

// Topology is one or more Redis servers on which locks are kept.
type Topology interface {
	// Endpoint says where the locks are.
	Endpoint() worker.Endpoint

	// Servers returns every server that clients may connect to.
	Servers() []*redistest.Server

	// Holders returns the servers that hold keys now. It may leave out a server that does not answer.
	Holders() []*redistest.Server

	// Need returns how many servers must hold a key.
	Need() int

	// Inject does a fault of a server, and returns when the fault is over. The end of ctx heals the server early. Inject
	// returns an error if it could not do the fault.
	Inject(ctx context.Context, f plan.Fault) (Harm, error)

	// Heal makes every server run, and waits until all of them serve.
	Heal() error

	// Close ends every server.
	Close() error
}

// Harm says for which keys Redis may have forgotten what it acknowledged, or ended leases early. No lock can make up for
// that. They are all keys if Everything is true, and Keys otherwise.
type Harm struct {
	Everything bool
	Keys       []string

	// Unguarded says that not even a guard can make up for it.
	Unguarded bool

	// Back is what a server had when it had gone back to earlier data.
	Back Content
}

// Content is what a server had at a time.
type Content struct {
	At   int64
	Keys map[string][]Stored // a key that several may hold has one for each holder
}

// Stored is what a server has for a key, or for one holder of it.
type Stored struct {
	Value string        // token, or token, a space and metadata; "" unless the key is a string
	TTL   time.Duration // negative: it never expires
}

// harm returns the Harm to all keys, or to none.
func harm(everything bool) Harm { return Harm{Everything: everything} }

// guards are the guards of the topologies whose names end in "+guard". The ttls are short, so that much happens in a round.
var guards = map[string]worker.Guard{
	"memory":   {MaxTTL: 3 * time.Second},
	"sentinel": {MaxTTL: 5 * time.Second, Deposed: 3 * time.Second},
	"quorum":   {MaxTTL: 3 * time.Second},
}

// Start starts a topology.
func Start(name string) (Topology, error) {
	name, guarded := strings.CutSuffix(name, "+guard")
	var guard worker.Guard
	if guarded {
		guard = guards[name]
	}
	switch name {
	case "one":
		// The server writes before it replies, so a SIGKILL loses nothing.
		return startOne(name, guard, "appendonly yes", "appendfsync always")
	case "memory":
		return startOne(name, guard)
	case "sentinel":
		return startSentinel(guard)
	case "cluster":
		return startCluster()
	case "quorum":
		return startQuorum(guard)
	}
	return nil, fmt.Errorf("there is no topology %q", name)
}

func init() { redis.SetLogger(silent{}) } // go-redis would print that servers are down, which they are on purpose

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

// Connect returns a client for a few commands to a server. The client gives up soon. The caller closes it.
func Connect(s *redistest.Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialTimeout: 300 * time.Millisecond,
		ReadTimeout: 500 * time.Millisecond, WriteTimeout: 500 * time.Millisecond, DialerRetries: 1,
	})
}

// ask sends one command to a server.
func ask(s *redistest.Server, args ...any) error {
	client := Connect(s)
	defer client.Close()
	return client.Do(context.Background(), args...).Err()
}

// single does a fault of one server after which the server still has its data.
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
		// If the server is down or paused now, it must not stay full.
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
		_ = ask(s, "config", "set", "maxmemory", "0") // fails at a sentinel, which has no such setting
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
