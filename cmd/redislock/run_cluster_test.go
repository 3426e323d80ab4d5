//go:build unix

package main

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/internal/redistest"
)

var _ = Describe("redislock run on a Cluster", Ordered, func() {
	var url string

	BeforeAll(func() {
		needServer()
		cluster, err := redistest.StartCluster(3, 0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Close)
		url = "redis://" + cluster.Addrs()[0]
	})

	It("locks keys of one hash tag, in line", func() {
		first := start(commandOf([]string{"REDIS_URL=" + url}, "run", "-k", "{x}a", "-k", "{x}b", "--ttl", "1s", "--", "sleep", "2"))
		Eventually(func() int { return ranWith(url, nil, "inspect", "{x}a", "{x}b").ExitCode() }).Should(BeZero())
		began := time.Now()
		second := ranWith(url, nil, "run", "-k", "{x}b", "--wait", "10s", "--fence-key", "{x}n", "--", "printenv", "REDISLOCK_FENCE")
		Expect(second).To(gexec.Exit(0), stderrOf(second))
		Expect(time.Since(began)).To(BeNumerically(">", time.Second))
		Expect(stdoutOf(second)).To(MatchRegexp(`^\d{16}\n$`))
		Eventually(first).Should(gexec.Exit(0))
	})

	It("says which keys cannot go together, and locks none", func() {
		session := ranWith(url, nil, "run", "-k", "a", "-k", "b", "--", "true")
		Expect(session).To(gexec.Exit(64))
		Expect(stderrOf(session)).To(MatchRegexp(`^redislock: .*slot.*\n$`))
		Expect(ranWith(url, nil, "inspect", "a")).To(gexec.Exit(1))
		Expect(ranWith(url, nil, "inspect", "b")).To(gexec.Exit(1))
	})
})
