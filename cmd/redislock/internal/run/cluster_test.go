//go:build unix

package run

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

var _ = Describe("redislock run on a Cluster", Ordered, func() {
	var (
		cluster *redistest.Cluster
		url     string
	)

	BeforeAll(func() {
		clitest.NeedServer()
		var err error
		cluster, err = redistest.StartCluster(3, 0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Close)
		url = "redis://" + cluster.Addrs()[0]
	})

	It("locks keys of one hash tag, in line", func() {
		first := clitest.Begin(url, "run", "-k", "{x}a", "-k", "{x}b", "--ttl", "500ms", "--", "sleep", "1")
		Eventually(func() int { return clitest.Run(url, "inspect", "{x}a", "{x}b").ExitCode() }).Should(BeZero())
		began := time.Now()
		second := clitest.Run(url, "run", "-k", "{x}b", "--wait", "10s", "--fence-key", "{x}n", "--", "printenv", "REDISLOCK_FENCE")
		Expect(second).To(gexec.Exit(0), clitest.Stderr(second))
		Expect(time.Since(began)).To(BeNumerically(">", 500*time.Millisecond))
		Expect(clitest.Stdout(second)).To(MatchRegexp(`^\d{16}\n$`))
		Eventually(first).Should(gexec.Exit(0))
	})

	It("gives keys of one hash tag the token of the user", func() {
		session := clitest.Run(url, "run", "-k", "{x}a", "-k", "{x}b", "--token", "mine", "--",
			clitest.Program(), "release", "{x}a", "{x}b", "--token", "mine")
		Expect(session).To(gexec.Exit(76), clitest.Stderr(session)) // its own command has released the locks
		Expect(clitest.Stderr(session)).To(Equal("redislock: the lock was lost before the command ended: lock not held\n"))
	})

	It("says which keys cannot go together, and locks none", func() {
		session := clitest.Run(url, "run", "-k", "a", "-k", "b", "--", "true")
		Expect(session).To(gexec.Exit(64))
		Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*slot.*\n$`))
		Expect(clitest.Run(url, "inspect", "a")).To(gexec.Exit(1))
		Expect(clitest.Run(url, "inspect", "b")).To(gexec.Exit(1))
	})

	It("releases with a password that was replaced", func(ctx SpecContext) {
		var masters []*redis.Client
		for _, addr := range cluster.Addrs() {
			master := redis.NewClient(&redis.Options{Addr: addr})
			DeferCleanup(master.Close)
			masters = append(masters, master)
		}
		user := clitest.NewUser(ctx, masters...)
		end := filepath.Join(GinkgoT().TempDir(), "end")
		session := clitest.Begin(user.URL(cluster.Addrs()[0]), "run", "-k", "a", "--password-file", user.File, "--",
			"sh", "-c", "until [ -e "+end+" ]; do sleep 0.05; done")
		Eventually(func() int { return clitest.Run(url, "inspect", "a").ExitCode() }).Should(BeZero())
		user.Replace(ctx, "secret-2")
		Expect(os.WriteFile(end, nil, 0o600)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stderr(session)).To(BeEmpty())
		Expect(clitest.Run(url, "inspect", "a")).To(gexec.Exit(1))
	})
})
