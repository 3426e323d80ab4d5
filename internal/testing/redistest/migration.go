package redistest

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A Migration moves one slot of a cluster to another master, in the steps that
// a resharding takes: BeginMigration, MoveKeys, Finish.
//
//   - After BeginMigration the source serves the keys that it has, and answers
//     ASK for those that it does not; a command on both kinds gets TRYAGAIN.
//   - After MoveKeys it answers ASK for the moved keys too. MoveKeys may be
//     called again for keys that came later.
//   - After Finish it answers MOVED.
//
// A Migration must not be used concurrently.
type Migration struct {
	slot           int
	source, target member
	cluster        *Cluster
}

// BeginMigration opens slot at its master for migrating, and at another master for importing. It returns an error if the
// slot has no master, or there is no other master.
func (c *Cluster) BeginMigration(slot int) (*Migration, error) {
	members, err := c.members()
	if err != nil {
		return nil, err
	}
	source, ok := ownerOf(members, slot)
	if !ok {
		return nil, fmt.Errorf("redistest: no node serves slot %d", slot)
	}
	m := &Migration{slot: slot, source: source, cluster: c}
	for _, other := range members {
		if other.node != source.node && len(other.ranges) > 0 {
			m.target = other
			break
		}
	}
	if m.target.node == nil {
		return nil, fmt.Errorf("redistest: no other master to take slot %d", slot)
	}
	// The target first: the source sends clients there at once.
	if err := m.setSlot(m.target, "importing", source.id); err != nil {
		return nil, err
	}
	if err := m.setSlot(source, "migrating", m.target.id); err != nil {
		return nil, err
	}
	return m, nil
}

// Source returns the node that the slot leaves.
func (m *Migration) Source() *Server { return m.source.node }

// Target returns the node that the slot goes to.
func (m *Migration) Target() *Server { return m.target.node }

// MoveKeys moves all keys that the slot has now.
func (m *Migration) MoveKeys() error {
	ctx := context.Background()
	return m.source.node.with(func(client *redis.Client) error {
		for {
			keys, err := client.ClusterGetKeysInSlot(ctx, m.slot, 100).Result()
			if err != nil || len(keys) == 0 {
				return err
			}
			args := []any{"migrate", "127.0.0.1", m.target.node.port, "", 0, 1000, "keys"}
			for _, key := range keys {
				args = append(args, key)
			}
			if err := client.Do(ctx, args...).Err(); err != nil {
				return err
			}
		}
	})
}

// Finish gives the slot to the target and waits until the cluster is settled, as Cluster.Settle does. It returns an error,
// and changes nothing, if the source has keys of the slot left.
func (m *Migration) Finish() error {
	members, err := m.cluster.members()
	if err != nil {
		return err
	}
	// The source refuses to drop its keys only until it has heard from the target itself. So check for keys first.
	if err := m.source.node.with(func(client *redis.Client) error {
		n, err := client.ClusterCountKeysInSlot(context.Background(), m.slot).Result()
		if n > 0 {
			err = fmt.Errorf("slot %d has %d keys left", m.slot, n)
		}
		return err
	}); err != nil {
		return err
	}
	// The target first: while neither of the two claimed the slot, each would send clients to the other.
	order := []member{m.target, m.source}
	for _, other := range members {
		if other.node != m.source.node && other.node != m.target.node && len(other.ranges) > 0 {
			order = append(order, other)
		}
	}
	for _, master := range order {
		if err := m.setSlot(master, "node", m.target.id); err != nil {
			return err
		}
	}
	return m.cluster.Settle()
}

func (m *Migration) setSlot(at member, state, id string) error {
	return at.node.with(func(client *redis.Client) error {
		return client.Do(context.Background(), "cluster", "setslot", m.slot, state, id).Err()
	})
}
