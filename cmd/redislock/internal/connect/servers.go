package connect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Masters returns a client for each server that has keys: of a Cluster all masters, in the order of their addresses,
// and of a quorum those that answer now; without a majority of them, it returns an error.
func Masters(ctx context.Context, client redis.UniversalClient) ([]*redis.Client, error) {
	switch client := client.(type) {
	case *redis.Client:
		return []*redis.Client{client}, nil
	case *Quorum:
		return client.answering(ctx, straggler)
	case *redis.ClusterClient:
		var mu sync.Mutex // protects all
		var all []*redis.Client
		err := client.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, master)
			return nil
		})
		slices.SortFunc(all, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
		return all, err
	}
	panic("connect returns no other client")
}

// neighborPatience is how long connecting to a neighbor, and each of its answers, may take. Often it cannot be reached from
// here at all.
const neighborPatience = time.Second

// Neighbor returns a client for another server, in the way in which server is reached: with the same user, password and
// TLS. It tries once.
func (t *Target) Neighbor(server *redis.Client, addr string) *redis.Client {
	opt := *server.Options()
	opt.Network, opt.Addr, opt.Dialer = "tcp", addr, dialer(opt.TLSConfig, min(t.patience, neighborPatience))
	opt.MaxRetries, opt.ReadTimeout, opt.WriteTimeout = -1, neighborPatience, neighborPatience
	return redis.NewClient(&opt)
}

// ask returns what a server says that it is: standalone, cluster or sentinel. HELLO is the one command that no ACL forbids,
// and it costs as much as a PING. It needs the version of the protocol before Redis 6.2: ask repeats the one that go-redis
// has agreed on.
func ask(ctx context.Context, client redis.UniversalClient, protocol int) (mode string, err error) {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello", cmp.Or(protocol, 3))
	if err := client.Process(ctx, once{hello}); err != nil {
		if redis.HasErrorPrefix(err, "ERR unknown command") { // it is older than Redis 6, or not Redis; but it answers
			return "", nil
		}
		return "", err
	}
	mode, _ = hello.Val()["mode"].(string)
	return mode, nil
}

// Ping asks a Redis once whether it answers; of a quorum, whether a majority does.
func Ping(ctx context.Context, client redis.UniversalClient) error {
	if q, ok := client.(*Quorum); ok {
		_, err := q.answering(ctx, 0)
		return err
	}
	return client.Process(ctx, once{redis.NewCmd(ctx, "ping")})
}

// once is a command that go-redis does not repeat: somebody at a terminal wants to know at once what is wrong.
type once struct{ redis.Cmder }

// NoRetry asks go-redis not to repeat it.
func (once) NoRetry() bool { return true }
