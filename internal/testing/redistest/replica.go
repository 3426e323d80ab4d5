package redistest

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// PromptSync is a line for redis.conf of a master that may get a replica: it does not wait for more replicas before it sends
// its data to the first one.
const PromptSync = "repl-diskless-sync-delay 0"

// StartReplica starts a replica of a server, with config and env as in StartWithEnv, and waits until it is in sync. The
// first replica gives its master a new master_replid.
func StartReplica(of *Server, env []string, config ...string) (*Server, error) {
	s, err := StartWithEnv(env, append([]string{PromptSync, replicaOf(of)}, config...)...)
	if err != nil {
		return nil, err
	}
	if err := s.InSync(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// InSync waits until the server, a replica, is linked to its master and has its data.
func (s *Server) InSync() error {
	return s.with(func(client *redis.Client) error {
		return poll(nil, settleLimit, func() error { return linked(client) })
	})
}

// CutOff makes the server, a replica, lack what its master writes from now on. A master lacks the data of the one that it
// follows next. Neither Promote nor a failover by sentinels is prevented, but these take no replica that was cut off for
// longer than 10 times down-after-milliseconds before its master died. SIGSTOP would not do instead of it: what the kernel
// has received for the replica is executed after SIGCONT, even if the master is dead by then.
func (s *Server) CutOff() error {
	return s.with(func(client *redis.Client) error {
		ctx := context.Background()
		// The master wants no password, and refuses a replica that has one.
		if err := client.ConfigSet(ctx, "masterauth", "none").Err(); err != nil {
			return err
		}
		if err := client.Do(ctx, "client", "kill", "type", "master").Err(); err != nil {
			return err
		}
		return poll(nil, settleLimit, func() error {
			info, err := client.Info(ctx, "replication").Result()
			if err == nil && infoField(info, "master_link_status") == "up" {
				err = errors.New("it is still linked to its master")
			}
			return err
		})
	})
}

// replicaOf returns the line for redis.conf of a replica.
func replicaOf(master *Server) string { return fmt.Sprintf("replicaof 127.0.0.1 %d", master.port) }

// Follow makes the server a replica of another one. It does not wait for the data, and gets none after CutOff.
func (s *Server) Follow(other *Server) error {
	return s.with(func(client *redis.Client) error {
		return client.Do(context.Background(), "replicaof", "127.0.0.1", other.port).Err()
	})
}

// Promote makes the server a master.
func (s *Server) Promote() error {
	return s.with(func(client *redis.Client) error {
		return client.Do(context.Background(), "replicaof", "no", "one").Err()
	})
}
