//go:build unix

package release

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
)

var _ = Describe("release of a shared key", func() {
	on := clitest.OnServer()

	share := func(ctx context.Context, client redis.UniversalClient, metadata, key string) *redislock.Lock {
		GinkgoHelper()
		lock, err := redislock.Obtain(ctx, client, key, time.Minute, &redislock.Options{Metadata: metadata, Shared: []string{key}})
		Expect(err).NotTo(HaveOccurred())
		return lock
	}
	holders := func(ctx context.Context, key string) int {
		GinkgoHelper()
		locks := redislock.New(on.Client)
		defer locks.Close()
		found, err := locks.Inspect(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		return found[0].HolderCount
	}

	It("releases one holder by its token, and leaves the others", func(ctx SpecContext) {
		first, second := share(ctx, on.Client, "", "a"), share(ctx, on.Client, "", "a")
		Expect(on.Run("release", "a", "--token", first.Token())).To(gexec.Exit(0))
		Expect(holders(ctx, "a")).To(Equal(1))
		session := on.Run("release", "a", "--token", first.Token())
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not released: "a" is held by `))
		Expect(on.Run("release", "a", "--token", second.Token())).To(gexec.Exit(0))
		Expect(on.Client.DBSize(ctx).Val()).To(BeZero())
	})

	It("releases all with --force, however many, and says how many", func(ctx SpecContext) {
		for i := range 120 {
			share(ctx, on.Client, fmt.Sprint("job ", i), "a")
		}
		session := on.Run("release", "a", "--force", "--yes")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^released a from 120 holders, held by job \d+ and 119 more, 5\ds left\n$`))
		Expect(on.Client.DBSize(ctx).Val()).To(BeZero())
	})

	It("wakes who waits for it, with --force", func(ctx SpecContext) {
		share(ctx, on.Client, "", "a")
		share(ctx, on.Client, "", "a")
		session := clitest.Begin(on.URL, "run", "-k", "a", "--", "echo", "next")
		Eventually(on.Client.Exists).WithArguments(ctx, keyname.LineOf("a")).Should(HaveField("Val()", int64(1)))
		Expect(on.Run("release", "a", "--force", "--yes")).To(gexec.Exit(0))
		Eventually(session, "2s").Should(gexec.Exit(0))
	})

	It("leaves who has come after the question", func(ctx SpecContext) {
		share(ctx, on.Client, clitest.Bob, "a")
		user := clitest.NewTypist(on.URL)
		user.Types("$R release a --force; echo code $?\n")
		user.Sees(`a is held by bob@api-3, pid 4121 \(\./ship 7\), 5\ds left\r\nRelease it nevertheless\? \[y/N\] `)
		later := share(ctx, on.Client, "", "a")
		user.Types("y\n")
		user.Sees(`released a from 1 holder, held by bob.*\r\ncode 0`)
		Expect(holders(ctx, "a")).To(Equal(1))
		Expect(later.Release(ctx)).To(Succeed())
	})

	It("needs no --any for custom tokens and a key without expiry", func(ctx SpecContext) {
		_, err := redislock.Obtain(ctx, on.Client, "a", time.Minute, &redislock.Options{Token: "job-1", Shared: []string{"a"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(on.Client.Persist(ctx, "a").Err()).To(Succeed())
		Expect(on.Run("release", "a", "--force", "--yes")).To(gexec.Exit(0))
		Expect(on.Client.DBSize(ctx).Val()).To(BeZero())
	})

	It("frees with --force what nobody holds any more", func(ctx SpecContext) {
		share(ctx, on.Client, "", "a")
		Expect(on.Client.Del(ctx, keyname.HouseOf("a")).Err()).To(Succeed())
		session := on.Run("release", "a", "--force", "--yes")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(Equal("released a, which nobody held\n"))
		Expect(on.Client.DBSize(ctx).Val()).To(BeZero())
	})

	It("renews one holder", func(ctx SpecContext) {
		lock := share(ctx, on.Client, "", "a")
		share(ctx, on.Client, "", "a")
		Expect(on.Run("renew", "a", "--token", lock.Token(), "--ttl", "10m")).To(gexec.Exit(0))
		Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("~", 10*time.Minute, 5*time.Second))
		Expect(lock.TTL(ctx)).To(BeNumerically("~", 10*time.Minute, 5*time.Second))
		session := on.Run("renew", "a", "--token", "nobody", "--ttl", "10m")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not renewed: "a" is held by`))
	})

	It("releases all at every server of a quorum, with --force", func(ctx SpecContext) {
		_, clients, urls, locks := clitest.NewQuorum()
		for range 3 {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Shared: []string{"a"}})
			Expect(err).NotTo(HaveOccurred())
		}
		session := clitest.Run(urls, "release", "a", "--force", "--yes")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(HavePrefix("released a from 3 holders, "))
		for _, client := range clients {
			Eventually(func() int64 { return client.DBSize(ctx).Val() }).Should(BeZero())
		}
	})

	// guarded acquires a shared key in a database whose guard closes then.
	guarded := func(ctx context.Context) (client *redis.Client, url string, locks []*redislock.Lock) {
		GinkgoHelper()
		_, identity, url := clitest.NewMemory()
		opt, err := redis.ParseURL(url)
		Expect(err).NotTo(HaveOccurred())
		client = redis.NewClient(opt)
		DeferCleanup(client.Close)
		Expect(clitest.Run(url, "guard", "open", "--yes", "--max-ttl", "2m", "--deposed", "0")).To(gexec.Exit(0))
		guard := redislock.New(client, redislock.WithGuard(2*time.Minute, 0))
		DeferCleanup(guard.Close)
		for range 2 {
			lock, err := guard.Obtain(ctx, "a", time.Minute, &redislock.Options{Shared: []string{"a"}})
			Expect(err).NotTo(HaveOccurred())
			locks = append(locks, lock)
		}
		identity.Begin() // a new term, with the data of the last
		return client, url, locks
	}

	It("releases one holder while the guard is closed", func(ctx SpecContext) {
		client, url, locks := guarded(ctx)
		session := clitest.Run(url, "release", "a", "--token", locks[0].Token(), "--max-ttl", "2m", "--deposed", "0")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(client.ZScore(ctx, keyname.HouseOf("a"), locks[0].Token()).Err()).To(MatchError(redis.Nil))
		Expect(client.ZScore(ctx, keyname.HouseOf("a"), locks[1].Token()).Err()).NotTo(HaveOccurred())
		session = clitest.Run(url, "release", "a", "--token", locks[1].Token(), "--max-ttl", "2m", "--deposed", "0")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(client.Exists(ctx, "a", keyname.HouseOf("a")).Val()).To(BeZero())
	})

	It("takes the key from all while the guard is closed, with --force", func(ctx SpecContext) {
		client, url, _ := guarded(ctx)
		session := clitest.Run(url, "release", "a", "--force", "--yes", "--max-ttl", "2m", "--deposed", "0")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(session.Out).To(gbytes.Say("took a until the guard opens in .* and 1 more"))
		Expect(client.Get(ctx, "a").Val()).To(ContainSubstring("released by force while the guard is closed"))
		Expect(client.Exists(ctx, keyname.HouseOf("a")).Val()).To(BeZero())
	})
})
