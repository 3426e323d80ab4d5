package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	masterName = "mymaster"
	sentinels  = 3
	quorum     = 2
	tilt       = 30 * time.Second // for which a sentinel only watches after a jump of the clock
)

// A Sentinel is a master with one replica, and three sentinels that watch them and replace the master when two of them have
// missed it for half a second. The replacement takes some 2 seconds. It is safe for concurrent use.
type Sentinel struct {
	master, replica *Server
	sentinels       []*Server
}

// StartSentinel starts the servers and waits until the replica is in sync and the sentinels know it and each other, so that
// they are ready to replace the master. It returns an error, and leaves nothing behind, if a server does not start or that
// does not happen within 30 seconds.
func StartSentinel() (*Sentinel, error) {
	s := new(Sentinel)
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// MasterName returns the name that the sentinels have for the master.
func (s *Sentinel) MasterName() string { return masterName }

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Sentinels returns the sentinels, in the order of Addrs.
func (s *Sentinel) Sentinels() []*Server { return slices.Clone(s.sentinels) }

// Master returns the server that started as the master; after a failover it is the other one that serves.
func (s *Sentinel) Master() *Server { return s.master }

// KillMaster kills the server that started as the master. It waits first until every sentinel is ready to replace it. After
// a jump of the machine's clock, a sentinel only watches for half a minute. A master that dies meanwhile would never be
// replaced: when the sentinels act again, the replica has been without a master for longer than they accept.
func (s *Sentinel) KillMaster() error {
	for _, sentinel := range s.sentinels {
		if err := sentinel.with(func(client *redis.Client) error {
			return poll(nil, 2*tilt, func() error { return acts(client) })
		}); err != nil {
			return fmt.Errorf("redistest: the sentinel at %s is not ready: %w", sentinel.Addr(), err)
		}
	}
	return s.master.Kill()
}

// Replica returns the server that started as the replica.
func (s *Sentinel) Replica() *Server { return s.replica }

// Logs returns the last lines that each sentinel has logged, for the message of a spec that failed.
func (s *Sentinel) Logs() string {
	var logs strings.Builder
	for _, sentinel := range s.sentinels {
		fmt.Fprintf(&logs, "the sentinel at %s:\n%s\n", sentinel.Addr(), sentinel.logTail())
	}
	return logs.String()
}

// Close closes every server. The second and later calls do nothing.
func (s *Sentinel) Close() error {
	return closeAll(append([]*Server{s.master, s.replica}, s.sentinels...))
}

func (s *Sentinel) start() (err error) {
	if s.master, err = Start(PromptSync); err != nil {
		return err
	}
	// In sync first: a sentinel asks on sight, and then every 10 seconds only.
	if s.replica, err = StartReplica(s.master, nil); err != nil {
		return err
	}

	config := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", masterName, s.master.port, quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s 500", masterName),
		fmt.Sprintf("sentinel failover-timeout %s 3000", masterName),
	}
	if s.sentinels, err = startAll(sentinels, func() (*Server, error) {
		return start(nil, config, "--sentinel")
	}); err != nil {
		return err
	}
	if err := s.introduce(); err != nil {
		return err
	}
	for _, sentinel := range s.sentinels {
		if err := poll(nil, settleLimit, func() error { return s.known(sentinel) }); err != nil {
			return fmt.Errorf("redistest: the sentinel at %s is not ready: %w", sentinel.Addr(), err)
		}
	}
	return nil
}

// introduce lets each sentinel greet each other one. By themselves they do so
// every 2 seconds only, through the master, with the same message.
func (s *Sentinel) introduce() error {
	ctx := context.Background()
	for _, from := range s.sentinels {
		var id string
		err := from.with(func(client *redis.Client) (err error) {
			id, err = client.Do(ctx, "sentinel", "myid").Text()
			return err
		})
		if err != nil {
			return err
		}
		hello := fmt.Sprintf("127.0.0.1,%d,%s,0,%s,127.0.0.1,%d,0", from.port, id, masterName, s.master.port)
		for _, to := range s.sentinels {
			if to == from {
				continue
			}
			if err := to.with(func(client *redis.Client) error {
				return client.Publish(ctx, "__sentinel__:hello", hello).Err()
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// acts returns nil if a sentinel does more than watch.
func acts(client *redis.Client) error {
	info, err := client.Info(context.Background(), "sentinel").Result()
	if err != nil {
		return err
	}
	if tilts := infoField(info, "sentinel_tilt"); tilts != "0" {
		return fmt.Errorf("it has sentinel_tilt:%s", tilts)
	}
	return nil
}

// known returns nil if a sentinel knows the replica and the other sentinels, and reports no problem with them.
func (s *Sentinel) known(sentinel *Server) error {
	ctx := context.Background()
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr(), Protocol: 2, DisableIdentity: true})
	defer client.Close()

	replicas, err := client.Replicas(ctx, masterName).Result()
	if err != nil {
		return err
	}
	if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" ||
		replicas[0]["port"] != strconv.Itoa(s.replica.port) {
		return fmt.Errorf("it sees the replicas %v", replicas)
	}
	others, err := client.Sentinels(ctx, masterName).Result()
	if err != nil {
		return err
	}
	if len(others) != sentinels-1 || slices.ContainsFunc(others, func(other map[string]string) bool {
		return other["flags"] != "sentinel"
	}) {
		return fmt.Errorf("it sees the sentinels %v", others)
	}
	return nil
}
