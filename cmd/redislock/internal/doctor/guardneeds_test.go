//go:build unix

package doctor

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/internal/keyname"
)

var _ = Describe("doctor of a guard", func() {
	const token = "q83vEjRWeJCrze8SNFZ4kA"

	// examined is what doctor finds out about the guard of a server in memory.
	examined := func(ctx SpecContext, text string, flags connect.Guard, f facts, locks ...time.Duration) map[string]finding {
		GinkgoHelper()
		server, identity, url := clitest.NewMemory()
		if text != "" {
			Expect(server.Set(keyname.GuardMarker, strings.ReplaceAll(text, "ID", identity.ID()))).To(Succeed())
		}
		for i, ttl := range locks {
			key := string(rune('a' + i))
			Expect(server.Set(key, token)).To(Succeed())
			server.SetTTL(key, ttl)
		}
		opt, err := redis.ParseURL(url)
		Expect(err).NotTo(HaveOccurred())
		client := redis.NewClient(opt)
		DeferCleanup(client.Close)
		d := &doctor{target: &connect.Target{Env: &cli.Env{}, Guard: flags}, user: "app"}
		found := map[string]finding{}
		for _, f := range d.guard(ctx, client, f) {
			if f.Status == isOK {
				Expect(f.Why).To(BeEmpty(), f.Found)
			} else {
				Expect(f.Why).NotTo(BeEmpty(), f.Found)
			}
			found[f.Check] = f
		}
		return found
	}

	info := func(pairs ...string) (f facts) {
		f = facts{info: map[string]string{"connected_slaves": "0"}, config: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			f.info[pairs[i]], f.config[pairs[i]] = pairs[i+1], pairs[i+1]
		}
		return f
	}

	It("says what the marker says", func(ctx SpecContext) {
		found := examined(ctx, "", connect.Guard{}, info())
		Expect(found).To(HaveLen(1))
		Expect(found["guard"].Status).To(Equal(isOK))
		Expect(examined(ctx, "", connect.Guard{MaxTTL: time.Minute}, info())["guard"].Status).To(Equal(isWarning))
		Expect(examined(ctx, "ID 33000 3000", connect.Guard{}, info())["guard"].Found).To(Equal("open; it closes for 33s: maxTTL 30s, deposed 3s"))
		Expect(examined(ctx, "0ID 33000 3000", connect.Guard{}, info())["guard"].Do).To(ContainSubstring("redislock guard open"))
		Expect(examined(ctx, "ID 33000 3000 99999999999999", connect.Guard{}, info())["guard"].Found).To(HavePrefix("closed for another 33s"))
	})

	It("compares it with the flags", func(ctx SpecContext) {
		flags := connect.Guard{MaxTTL: 30 * time.Second, Deposed: 3 * time.Second, HasDeposed: true}
		Expect(examined(ctx, "ID 33000 3000", flags, info())).NotTo(HaveKey("guard length"))
		for _, text := range []string{"ID 34000 3000", "ID 34000 4000", "ID 33000 2000"} {
			Expect(examined(ctx, text, flags, info())["guard length"].Status).To(Equal(isWarning), text)
		}
		flags = connect.Guard{MaxTTL: 30 * time.Second}
		Expect(examined(ctx, "ID 33000 3000", flags, info())).NotTo(HaveKey("guard length"))
	})

	It("finds locks that last longer than the guard allows", func(ctx SpecContext) {
		found := examined(ctx, "ID 33000 3000", connect.Guard{}, info(), 10*time.Second, time.Minute)
		Expect(found["guard ttls"].Status).To(Equal(isBad))
		Expect(found["guard ttls"].Found).To(Equal("1 of 2 locks last longer than 30s, such as b"))
		Expect(examined(ctx, "ID 33000 3000", connect.Guard{}, info(), 10*time.Second)["guard ttls"].Status).To(Equal(isOK))
		flags := connect.Guard{MaxTTL: 5 * time.Second}
		Expect(examined(ctx, "ID 5000 0", flags, info(), 10*time.Second)["guard ttls"].Status).To(Equal(isBad))
	})

	DescribeTable("compares how long a deposed master grants with deposed",
		func(ctx SpecContext, deposed time.Duration, least, lag string, status verdict) {
			flags := connect.Guard{MaxTTL: 30 * time.Second, Deposed: deposed, HasDeposed: deposed >= 0}
			if deposed < 0 {
				flags = connect.Guard{}
			}
			f := info("connected_slaves", "2", "min-replicas-to-write", least, "min-replicas-max-lag", lag)
			Expect(examined(ctx, "ID 33000 3000", flags, f)["guard deposed"].Status).To(Equal(status))
		},
		Entry("enough", 3*time.Second, "2", "1", isOK),
		Entry("too short", 2*time.Second, "2", "1", isWarning),
		Entry("too long a lag", 3*time.Second, "2", "10", isWarning),
		Entry("too few replicas", 3*time.Second, "1", "1", isWarning),
		Entry("no limit", 3*time.Second, "2", "0", isWarning),
		Entry("by the marker, enough", -time.Second, "2", "1", isOK),
		Entry("by the marker, too long a lag", -time.Second, "2", "10", isWarning),
	)

	It("finds a term that ends without need, and evictions", func(ctx SpecContext) {
		found := examined(ctx, "ID 33000 3000", connect.Guard{}, info("repl_backlog_active", "1", "repl-backlog-ttl", "3600"))
		Expect(found["guard backlog"].Status).To(Equal(isWarning))
		found = examined(ctx, "ID 33000 3000", connect.Guard{}, info("repl_backlog_active", "1", "repl-backlog-ttl", "0"))
		Expect(found["guard backlog"].Status).To(Equal(isOK))
		found = examined(ctx, "ID 33000 3000", connect.Guard{}, info("maxmemory-policy", "allkeys-lru", "maxmemory", "1000"))
		Expect(found["guard eviction"].Status).To(Equal(isBad))
	})

	It("says what a user without INFO lacks", func(ctx SpecContext) {
		server, client := clitest.NewServer("appendonly yes", "appendfsync always")
		url := "redis://app:pw@" + server.Addr()
		Expect(clitest.Run("redis://"+server.Addr(), "guard", "open", "--max-ttl", "33s", "--yes").ExitCode()).To(BeZero())
		setUser := func(rights ...any) {
			Expect(client.Do(ctx, append([]any{"ACL", "SETUSER", "app", "on", ">pw", "&*", "+@all"}, rights...)...).Err()).To(Succeed())
		}
		setUser("~*", "-info")
		f := checkup(clitest.Run(url, "doctor", "--json"))["guard"]
		Expect(f.Status).To(Equal("bad"))
		Expect(f.Do).To(Equal("ACL SETUSER app +info"))
		setUser("+info", "resetkeys", "~redislock:doctor:*")
		f = checkup(clitest.Run(url, "doctor", "--json"))["guard"]
		Expect(f.Status).To(Equal("unknown"))
		Expect(f.Do).To(Equal("ACL SETUSER app ~redislock:guard"))
	})
})
