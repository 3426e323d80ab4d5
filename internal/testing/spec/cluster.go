package spec

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/transport"
)

// StartCluster returns a real Cluster of three masters, which ends with the spec or the container of specs that starts it.
func StartCluster() *redistest.Cluster {
	GinkgoHelper()
	RequireServer()
	cluster, err := redistest.StartCluster(3, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cluster.Close)
	return cluster
}

// NewMemoryCluster returns a client of a Cluster of the servers. The keys "a", "b" and "c" are on the first three, and all
// others on the first. number is the client's.
func NewMemoryCluster(servers []*MemoryServer, number int, change func(*redis.Options)) *redis.ClusterClient {
	return NewCluster(len(servers), func(i int, opt *redis.Options) *redis.Client {
		return servers[i].Connect(number, func(own *redis.Options) {
			own.MaxRetries = opt.MaxRetries // a Cluster resends by itself
			if change != nil {
				change(own)
			}
		})
	})
}

// NewCluster returns a client of a Cluster of so many nodes, which need not know that they are one. The keys "a", "b" and
// "c" are on the first three, and all others on the first. connect connects to a node.
func NewCluster(nodes int, connect func(i int, opt *redis.Options) *redis.Client) *redis.ClusterClient {
	addrs := make([]string, nodes)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("node-%d:6379", i) // a loopback address would get another host
	}
	var ranges []redis.ClusterSlot
	add := func(first, last, node int) {
		if first <= last {
			ranges = append(ranges, redis.ClusterSlot{Start: first, End: last, Nodes: []redis.ClusterNode{{Addr: addrs[node]}}})
		}
	}
	next := 0
	for _, key := range []string{"b", "c", "a"} { // in the order of their slots
		slot := transport.Slot(key)
		add(next, slot-1, 0)
		add(slot, slot, min(slices.Index([]string{"a", "b", "c"}, key), nodes-1))
		next = slot + 1
	}
	add(next, 16383, 0)
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:        addrs,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return ranges, nil },
		NewClient: func(opt *redis.Options) *redis.Client {
			client := connect(slices.Index(addrs, opt.Addr), opt)
			client.AddHook(knowing{})
			return client
		},
		MaxRedirects: 3,
	})
}

// knowing answers COMMAND, which the first call on a Cluster sends with a mutex locked: so the clock of a bubble would not
// move if others wait for the mutex.
type knowing struct{}

func (knowing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (knowing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (knowing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if infos, is := cmd.(*redis.CommandsInfoCmd); is {
			infos.SetVal(map[string]*redis.CommandInfo{"eval": {Name: "eval"}, "evalsha": {Name: "evalsha"}})
			return nil
		}
		return next(ctx, cmd)
	}
}
