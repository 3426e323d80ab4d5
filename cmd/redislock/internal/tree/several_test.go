package tree

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

var _ = Describe("tree of several servers", func() {
	It("asks all masters of a Cluster", func(ctx SpecContext) {
		clitest.NeedServer()
		cluster, err := redistest.StartCluster(3, 0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Close)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		DeferCleanup(client.Close)
		stage(ctx, client)
		session := clitest.Run("redis+cluster://"+strings.Join(cluster.Addrs(), ","), "tree")
		Expect(session).To(gexec.Exit(0))
		clitest.ExpectGolden("tree", clitest.Stdout(session))
	})

	It("shows what a majority of a quorum holds, and goes on without a minority", func(ctx SpecContext) {
		servers, clients, urls, _ := clitest.NewQuorum()
		for _, client := range clients {
			stage(ctx, client)
		}
		tree := func() string {
			GinkgoHelper()
			session := clitest.Run(urls, "tree")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stderr(session)).To(BeEmpty())
			return clitest.Stdout(session)
		}
		clitest.ExpectGolden("tree", tree())

		waiter{name: "minority", wants: "order:7", ago: time.Minute}.stand(ctx, clients[0])
		clitest.ExpectGolden("tree", tree())

		Expect(clients[0].Del(ctx, "order:7").Err()).To(Succeed())
		clitest.ExpectGolden("tree", tree())
		Expect(clients[1].Set(ctx, "order:7", tokenOf("other"), longTTL).Err()).To(Succeed())
		Expect(tree()).To(ContainSubstring("\norder:7 has no majority: 2 holders on 2 of 3 servers; 1 waits\n└─ bob@host-ewa"))

		Expect(clients[1].Set(ctx, "order:7", clients[2].Get(ctx, "order:7").Val(), longTTL).Err()).To(Succeed())
		Expect(servers[0].Close()).To(Succeed())
		clitest.ExpectGolden("tree", tree())
	})
})
