//go:build unix

package run

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

var _ = Describe("redislock run whose password is replaced", func() {
	const ttl = 5 * time.Second
	var end string

	BeforeEach(func() { end = filepath.Join(GinkgoT().TempDir(), "end") })

	// begin starts a run under the lock a, which lasts until finish.
	begin := func(user *clitest.User, url string, flags ...string) *gexec.Session {
		GinkgoHelper()
		args := append([]string{"run", "-k", "a", "--ttl", ttl.String(), "--password-file", user.File}, flags...)
		return clitest.Start(clitest.Command([]string{"REDIS_URL=" + url, "END=" + end},
			append(args, "--", "sh", "-c", `until [ -e "$END" ]; do sleep 0.05; done`)...))
	}
	finish := func(session *gexec.Session) {
		GinkgoHelper()
		Expect(session).NotTo(gexec.Exit())
		Expect(os.WriteFile(end, nil, 0o600)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0), clitest.Stderr(session))
	}
	held := func(ctx context.Context, client *redis.Client) {
		GinkgoHelper()
		Eventually(client.Exists).WithArguments(ctx, "a").Should(HaveField("Val()", int64(1)))
	}
	// renewed waits for a renewal that is executed after the call. A renewal is due when the ttl is at two thirds.
	renewed := func(ctx context.Context, clients ...*redis.Client) {
		GinkgoHelper()
		left := func(client *redis.Client) time.Duration { return client.PTTL(ctx, "a").Val() }
		for _, client := range clients {
			Eventually(left).WithArguments(client).Should(BeNumerically("<", ttl-ttl/6))
		}
		for _, client := range clients {
			Eventually(left).WithArguments(client).Should(BeNumerically(">", ttl-ttl/6))
		}
	}
	free := func(ctx context.Context, client *redis.Client) {
		GinkgoHelper()
		Expect(client.Exists(ctx, "a").Val()).To(BeZero())
	}

	It("renews the lock and releases it with the new one", func(ctx SpecContext) {
		server, client := clitest.NewServer()
		user := clitest.NewUser(ctx, client)
		session := begin(user, user.URL(server.Addr()))
		held(ctx, client)
		user.Replace(ctx, "secret-2")
		renewed(ctx, client)
		user.Replace(ctx, "secret-3")
		finish(session)
		Expect(clitest.Stderr(session)).To(BeEmpty())
		free(ctx, client)
	})

	It("uses the last good one while the file is half-written, and warns once", func(ctx SpecContext) {
		server, client := clitest.NewServer()
		user := clitest.NewUser(ctx, client)
		session := begin(user, user.URL(server.Addr()), "--log-format", "json")
		held(ctx, client)
		Expect(os.Truncate(user.File, 0)).To(Succeed())
		user.Disconnect(ctx)
		renewed(ctx, client)
		user.Disconnect(ctx)
		finish(session)
		free(ctx, client)
		Expect(strings.Count(clitest.Stderr(session), `"level":"ERROR"`)).To(Equal(1), clitest.Stderr(session))
		Expect(clitest.Stderr(session)).To(ContainSubstring(
			`"error":"--password-file: there is no password in ` + user.File + `; new connections use what was read before"`))
		Expect(clitest.Stderr(session)).NotTo(ContainSubstring("secret"))
	})

	It("acquires the lock when its turn in line comes", func(ctx SpecContext) {
		server, client := clitest.NewServer()
		user := clitest.NewUser(ctx, client)
		holder := clitest.Hold(client, "", "a")
		session := begin(user, user.URL(server.Addr()))
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
		user.Replace(ctx, "secret-2")
		Expect(holder.Release(ctx)).To(Succeed())
		held(ctx, client)
		finish(session)
		Expect(clitest.Stderr(session)).To(BeEmpty())
		free(ctx, client)
	})

	It("renews and releases on each server of a quorum", func(ctx SpecContext) {
		var clients []*redis.Client
		var addrs []string
		for range 3 {
			server, client := clitest.NewServer()
			clients, addrs = append(clients, client), append(addrs, server.Addr())
		}
		user := clitest.NewUser(ctx, clients...)
		session := begin(user, user.URL(addrs[0])+" "+user.URL(addrs[1])+" "+user.URL(addrs[2]))
		for _, client := range clients {
			held(ctx, client)
		}
		user.Replace(ctx, "secret-2")
		renewed(ctx, clients...)
		finish(session)
		Expect(clitest.Stderr(session)).To(BeEmpty())
		for _, client := range clients {
			Eventually(client.Exists).WithArguments(ctx, "a").Should(HaveField("Val()", BeZero()))
		}
	})

	It("renews and releases on the master that Sentinels name", func(ctx SpecContext) {
		clitest.NeedServer()
		sentinel, err := redistest.StartSentinel()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sentinel.Close)
		client := redis.NewClient(&redis.Options{Addr: sentinel.Master().Addr()})
		DeferCleanup(client.Close)
		user := clitest.NewUser(ctx, client)
		session := begin(user, "redis+sentinel://ops@"+strings.Join(sentinel.Addrs(), ",")+"/"+sentinel.MasterName())
		held(ctx, client)
		user.Replace(ctx, "secret-2")
		renewed(ctx, client)
		finish(session)
		Expect(clitest.Stderr(session)).To(BeEmpty())
		free(ctx, client)
	})
})
