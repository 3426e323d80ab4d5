package redislock_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
	"github.com/redislock/redislock/redislockrueidis"
)

func init() {
	var clients sync.Map // of rueidis, by the client of go-redis that they replace
	spec.Through("rueidis", func() {
		spec.OtherClient = true
		redislock.Instead(func(client *redis.Client) redislock.RedisClient {
			connected, _ := clients.LoadOrStore(client, sync.OnceValue(func() rueidis.Client { return connect(client.Options()) }))
			return redislockrueidis.Adapt(connected.(func() rueidis.Client)())
		})
	})
}

// connect connects as a client of go-redis does, until the spec ends.
func connect(as *redis.Options) rueidis.Client {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{as.Addr}, SelectDB: as.DB, Username: as.Username, Password: as.Password,
		ForceSingleClient: true, ConnWriteTimeout: as.ReadTimeout, DisableCache: true,
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return as.Dialer(ctx, "tcp", addr)
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(client.Close)
	return client
}
