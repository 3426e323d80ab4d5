package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Cluster is a Redis Cluster of real servers. Its nodes are paused, killed
// and restarted like any Server. It is safe for concurrent use.
type Cluster struct {
	nodes []*Server
}

// clusterConfig makes nodes that notice a failure after 2 seconds, and replicas
// that are in sync soon and always fit to take over.
var clusterConfig = []string{
	"cluster-enabled yes",
	"cluster-announce-ip 127.0.0.1", // a node that has met nobody does not know it
	"cluster-node-timeout 2000",
	"cluster-replica-validity-factor 0",
	"repl-diskless-sync-delay 0",
	"repl-ping-replica-period 1", // CLUSTER SLOTS leaves out a replica until its first one
}

// StartCluster starts a Redis Cluster of masters that share the slots evenly,
// each with its replicas, and waits until it is settled, as Settle does. That
// takes at least 2 seconds, because a new master takes no part before that. Only
// a cluster of 3 masters or more can replace one that fails.
//
// It returns an error, and leaves nothing behind, if a server does not start or
// the cluster does not settle, or for less than one master.
func StartCluster(masters, replicasPerMaster int) (*Cluster, error) {
	if masters < 1 || replicasPerMaster < 0 {
		return nil, fmt.Errorf("redistest: no cluster has %d masters with %d replicas each", masters, replicasPerMaster)
	}
	nodes, err := startAll(masters*(1+replicasPerMaster), func() (*Server, error) {
		return Start(clusterConfig...)
	})
	if err != nil {
		return nil, err
	}
	c := &Cluster{nodes}
	if err := c.form(masters, replicasPerMaster); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Nodes returns the nodes: first those that started as masters, then the
// replicas of the first master, those of the second, and so on.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Addrs returns the addresses of the nodes, in the order of Nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// MasterOf returns the node that serves the key now: of the nodes that answer and say that they are the master of its slot,
// the one with the highest configuration epoch. It returns an error if there is none, for example between the failure of a
// master and the election of its replica.
func (c *Cluster) MasterOf(key string) (*Server, error) {
	members, err := c.members()
	owner, ok := ownerOf(members, SlotOf(key))
	if !ok {
		return nil, errors.Join(fmt.Errorf("redistest: no node serves key %q", key), err)
	}
	return owner.node, nil
}

// Settle waits until the nodes that run agree: each says that the cluster is
// ok, all name the same masters and replicas for the same slots, which are the
// nodes that run, no more and no fewer, and each replica is linked to its
// master. So after the end of a master it waits for the failover, and after a
// Restart for the return. A paused node counts as running.
//
// It returns an error if the cluster is not settled within 30 seconds.
func (c *Cluster) Settle() error {
	if err := poll(nil, settleLimit, c.settled); err != nil {
		return fmt.Errorf("redistest: the cluster did not settle: %w%s", err, c.nodesAsSeen())
	}
	return nil
}

// nodesAsSeen returns what CLUSTER NODES says at each node that answers, because the reason why nodes do not agree is mostly
// in their epochs.
func (c *Cluster) nodesAsSeen() string {
	var text strings.Builder
	for _, node := range c.nodes {
		_ = node.with(func(client *redis.Client) error {
			nodes, err := client.ClusterNodes(context.Background()).Result()
			if err == nil {
				fmt.Fprintf(&text, "\n%s says\n%s", node.Addr(), nodes)
			}
			return nil
		})
	}
	return text.String()
}

// Close closes every node. The second and later calls do nothing.
func (c *Cluster) Close() error { return closeAll(c.nodes) }

// form makes one cluster of the nodes, each of which is still one by itself.
func (c *Cluster) form(masters, replicasPerMaster int) error {
	ctx := context.Background()
	ids := make([]string, masters)
	for i, node := range c.nodes {
		err := node.with(func(client *redis.Client) (err error) {
			// Nodes that meet with the same epoch resolve the collision one by one, which takes longer than all the rest.
			if err := client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil || i >= masters {
				return err
			}
			first, end := slots*i/masters, slots*(i+1)/masters
			if err := client.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
				return err
			}
			ids[i], err = client.Do(ctx, "cluster", "myid").Text()
			return err
		})
		if err != nil {
			return err
		}
	}

	// The first node meets the others; these hear of each other by gossip.
	err := c.nodes[0].with(func(client *redis.Client) error {
		for _, node := range c.nodes[1:] {
			if err := client.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(node.port)).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	for i, replica := range c.nodes[masters:] {
		err := replica.with(func(client *redis.Client) error {
			// It refuses until it has heard of the master.
			return poll(nil, settleLimit, func() error {
				return client.ClusterReplicate(ctx, ids[i/replicasPerMaster]).Err()
			})
		})
		if err != nil {
			return err
		}
	}
	return c.Settle()
}

// settled returns nil if the nodes that run agree now.
func (c *Cluster) settled() error {
	running := slices.DeleteFunc(c.Nodes(), func(node *Server) bool { return node.Pid() == 0 })
	slices.SortFunc(running, func(a, b *Server) int { return a.port - b.port })
	var agreed string
	for i, node := range running {
		err := node.with(func(client *redis.Client) error {
			view, named, err := viewOf(client)
			if err != nil {
				return err
			}
			if i == 0 {
				agreed = view
			}
			if view != agreed {
				return fmt.Errorf("it sees %s, and another node %s", view, agreed)
			}
			if want := addrs(running); !slices.Equal(named, want) {
				return fmt.Errorf("it sees the nodes %v, but %v run", named, want)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// viewOf returns what a node says about the cluster: the slots with their nodes, in a form to compare, and the sorted
// addresses of the nodes. It returns an error if the node itself reports a problem.
func viewOf(client *redis.Client) (view string, named []string, err error) {
	ctx := context.Background()
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return "", nil, err
	}
	if state := infoField(info, "cluster_state"); state != "ok" {
		return "", nil, fmt.Errorf("its cluster_state is %q", state)
	}
	if err := linked(client); err != nil {
		return "", nil, err
	}
	ranges, err := client.ClusterSlots(ctx).Result() //nolint:staticcheck // servers before 7.0 have no CLUSTER SHARDS
	if err != nil {
		return "", nil, err
	}
	slices.SortFunc(ranges, func(a, b redis.ClusterSlot) int { return a.Start - b.Start })
	for _, r := range ranges {
		var of []string
		for _, node := range r.Nodes {
			of = append(of, node.Addr)
		}
		slices.Sort(of[1:]) // the replicas; the master comes first
		view += fmt.Sprintf("[%d-%d %v]", r.Start, r.End, of)
		named = append(named, of...)
	}
	slices.Sort(named)
	return view, slices.Compact(named), nil
}

// linked returns an error if the server is a replica whose link to its master is down.
func linked(client *redis.Client) error {
	info, err := client.Info(context.Background(), "replication").Result()
	if err != nil {
		return err
	}
	if infoField(info, "role") == "slave" && infoField(info, "master_link_status") != "up" {
		return errors.New("its link to the master is down")
	}
	return nil
}
