//go:build unix

package doctor

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/testing/redistest"
)

func TestDoctor(t *testing.T) { clitest.RunSpecs(t, "doctor") }

// findingJSON is what a program reads of doctor --json.
type findingJSON struct{ Status, Check, Server, Found, Why, Do string }

// checkup is what doctor has found, by check.
func checkup(session *gexec.Session) map[string]findingJSON {
	GinkgoHelper()
	found := map[string]findingJSON{}
	for line := range strings.Lines(clitest.Stdout(session)) {
		var f findingJSON
		Expect(json.Unmarshal([]byte(line), &f)).To(Succeed())
		Expect(f.Found).NotTo(BeEmpty())
		if f.Status == "ok" {
			Expect(f.Why+f.Do).To(BeEmpty(), f.Check)
		} else {
			Expect(f.Why).NotTo(BeEmpty(), f.Check)
			Expect(f.Do).NotTo(BeEmpty(), f.Check)
		}
		found[f.Check] = f
	}
	return found
}

var _ = Describe("doctor", func() {
	sound := []string{"appendonly yes", "appendfsync always"}

	It("finds nothing wrong with a sound server, and leaves no key behind", func(ctx SpecContext) {
		server, client := clitest.NewServer(sound...)
		session := clitest.Run("redis://"+server.Addr(), "doctor")
		Expect(session).To(gexec.Exit(0))
		clitest.ExpectGolden("doctor", clitest.Stdout(session))
		Expect(client.Keys(ctx, "*").Val()).To(BeEmpty())
	})

	It("finds that a Cluster without slots is of no use", func() {
		server, _ := clitest.NewServer("cluster-enabled yes")
		session := clitest.Run("redis://"+server.Addr(), "doctor")
		Expect(session).To(gexec.Exit(2))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`bad +cluster +no node serves a slot`))
	})

	It("prints JSON, too", func() {
		server, _ := clitest.NewServer(sound...)
		session := clitest.Run("redis://"+server.Addr(), "doctor", "--json")
		Expect(session).To(gexec.Exit(0))
		clitest.ExpectGolden("doctor-json", clitest.Stdout(session))
	})

	DescribeTable("says what a configuration does to locks",
		func(check, status, words string, code int, config ...string) {
			server, _ := clitest.NewServer(append(sound, config...)...)
			session := clitest.Run("redis://"+server.Addr(), "doctor", "--json")
			found := checkup(session)
			Expect(found[check].Status).To(Equal(status), clitest.Stdout(session))
			Expect(found[check].Found + ": " + found[check].Why).To(ContainSubstring(words))
			for name, f := range found {
				if name != check {
					Expect(f.Status).To(Equal("ok"), name)
				}
			}
			Expect(session).To(gexec.Exit(code))
		},
		Entry("nothing persisted", "persistence", "bad", "nothing", 2, "appendonly no", `save ""`),
		Entry("snapshots", "persistence", "warn", "snapshots only (save 60 1000)", 1, "appendonly no", "save 60 1000"),
		Entry("synced each second", "persistence", "warn", "appendfsync is everysec", 1, "appendfsync everysec"),
		Entry("never synced", "persistence", "warn", "appendfsync is no", 1, "appendfsync no"),
		Entry("any key evicted", "eviction", "bad", "allkeys-lru", 2, "maxmemory 100mb", "maxmemory-policy allkeys-lru"),
		Entry("locks evicted", "eviction", "bad", "as all locks are", 2, "maxmemory 100mb", "maxmemory-policy volatile-ttl"),
		Entry("no limit, so nothing evicted", "eviction", "ok", "no maxmemory", 0, "maxmemory-policy allkeys-lru"),
		Entry("no eviction", "eviction", "ok", "noeviction", 0, "maxmemory 100mb"),
	)

	Describe("of a master with a replica", func() {
		var master, replica *redistest.Server
		var client *redis.Client // of the master

		BeforeEach(func() {
			var beside *redis.Client
			master, client = clitest.NewServer(append(sound, "repl-diskless-sync-delay 0")...)
			host, port, _ := strings.Cut(master.Addr(), ":")
			replica, beside = clitest.NewServer(append(sound, "replicaof "+host+" "+port)...)
			Eventually(func() string {
				return clitest.InfoOf(context.Background(), beside, "replication")["master_link_status"]
			}).WithTimeout(20 * time.Second).Should(Equal("up"))
		})

		DescribeTable("says how long the master would grant locks after another server has taken its place",
			func(ctx SpecContext, found, why, do string, settings ...string) {
				for _, setting := range settings {
					name, value, _ := strings.Cut(setting, " ")
					Expect(client.ConfigSet(ctx, name, value).Err()).To(Succeed())
				}
				// With a short lag, the master refuses writes until the replica has confirmed one, which it does once a second.
				writes := func() error { return client.Set(ctx, "confirmed", "", time.Minute).Err() }
				var session *gexec.Session
				Eventually(func() int {
					Eventually(writes).WithTimeout(10 * time.Second).Should(Succeed())
					session = clitest.Run("redis://"+master.Addr(), "doctor", "--json")
					return session.ExitCode()
				}).WithTimeout(20 * time.Second).Should(Equal(1))
				c := checkup(session)["replicas"]
				Expect(c.Status).To(Equal("warn"))
				Expect(c.Found).To(Equal(found))
				Expect(c.Why).To(ContainSubstring(why))
				Expect(c.Do).To(ContainSubstring(do))
			},
			Entry("without a limit", "1, without min-replicas-to-write", "until it learns of that",
				"CONFIG SET min-replicas-to-write 1, CONFIG SET min-replicas-max-lag 1"),
			Entry("without a lag", "1, without min-replicas-to-write", "until it learns of that", "CONFIG SET min-replicas-to-write 1",
				"min-replicas-to-write 1", "min-replicas-max-lag 0"),
			Entry("with the default lag", "1, min-replicas-to-write 1, min-replicas-max-lag 10", "for that many seconds more",
				"CONFIG SET min-replicas-max-lag 1", "min-replicas-to-write 1"),
			Entry("with the shortest lag", "1, min-replicas-to-write 1, min-replicas-max-lag 1", "of one or two seconds", "fencing tokens",
				"min-replicas-to-write 1", "min-replicas-max-lag 1"),
		)

		It("says whether their clocks differ", func() {
			c := checkup(clitest.Run("redis://"+master.Addr(), "doctor", "--json"))["replica clock"]
			Expect(c.Status).To(Equal("ok"))
			Expect(c.Found).To(MatchRegexp(`^` + replica.Addr() + ` is within .* of its master$`))
		})

		It("says that it cannot compare the clock of a replica that does not answer", func(ctx SpecContext) {
			Expect(client.ConfigSet(ctx, "repl-timeout", "60").Err()).To(Succeed()) // the master goes on naming it
			Expect(replica.Pause()).To(Succeed())
			DeferCleanup(replica.Resume)
			c := checkup(clitest.Run("redis://"+master.Addr(), "doctor", "--json"))["replica clock"]
			Expect(c.Status).To(Equal("unknown"))
			Expect(c.Found).To(HavePrefix(replica.Addr() + " does not answer"))
		})

		It("says that the replica grants no locks", func() {
			session := clitest.Run("redis://"+replica.Addr(), "doctor", "--json")
			Expect(session).To(gexec.Exit(2))
			found := checkup(session)
			Expect(found["role"].Status).To(Equal("bad"))
			Expect(found["locking"].Status).To(Equal("bad"))
			Expect(found["locking"].Do).To(Equal("connect to the master, which ROLE names"))
			Expect(found).NotTo(HaveKey("replica clock"))
		})
	})

	DescribeTable("says what a replica's clock does to locks", func(ctx SpecContext, ahead time.Duration, status verdict, found, why string) {
		_, client := clitest.NewServer()
		replica := miniredis.RunT(GinkgoT()) // its clock can be set
		replica.SetTime(time.Now().Add(ahead))
		d := &doctor{target: &connect.Target{}}
		findings := d.replicaClocks(ctx, client, facts{info: map[string]string{
			"slave0": "ip=127.0.0.1,port=" + replica.Port() + ",state=online,offset=1,lag=0",
		}})
		Expect(findings).To(HaveLen(1))
		Expect(findings[0].Status).To(Equal(status), findings[0].Found)
		Expect(findings[0].Found).To(MatchRegexp(found))
		Expect(findings[0].Why).To(ContainSubstring(why))
	},
		Entry("ahead", time.Minute, isWarning, `is (1m0|59)[.0-9]*s ahead of its master`, "expires that much early"),
		Entry("behind", -time.Minute, isWarning, `is (1m0|59)[.0-9]*s behind its master`, "locks last that much longer"),
	)

	It("compares the latency with the ttl", func() {
		finder := &doctor{opt: doctorOptions{ttl: 1}}
		_, client := clitest.NewServer()
		Expect(finder.latency(context.Background(), client).Status).To(Equal(isBad))
		finder.opt.ttl = 1e12
		Expect(finder.latency(context.Background(), client).Status).To(Equal(isOK))
	})

	DescribeTable("says what a user is not allowed to do",
		func(ctx SpecContext, args string, statuses map[string]string, words string, rights ...any) {
			server, client := clitest.NewServer(sound...)
			Expect(client.Do(ctx, append([]any{"ACL", "SETUSER", "app", "on", ">pw"}, rights...)...).Err()).To(Succeed())
			session := clitest.Run("redis://app:pw@"+server.Addr(), append([]string{"doctor", "--json"}, strings.Fields(args)...)...)
			got := map[string]string{}
			for name, f := range checkup(session) {
				if f.Status != "ok" {
					got[name] = f.Status
				}
			}
			Expect(got).To(Equal(statuses), clitest.Stdout(session))
			Expect(clitest.Stdout(session)).To(ContainSubstring(words))
			Expect(client.Keys(ctx, "*").Val()).To(BeEmpty())
		},
		Entry("nothing but locking", "", map[string]string{
			"eviction": "unknown", "persistence": "unknown", "replicas": "unknown",
		}, "ask an administrator for the output of CONFIG GET maxmemory-policy", "~*", "&*", "+@read", "+@write", "+@scripting", "+time", "+publish", "+subscribe"),
		Entry("no TIME", "", map[string]string{"clock": "unknown", "locking": "warn"}, "ACL SETUSER app +time", "~*", "&*", "+@all", "-time"),
		Entry("no CONFIG, as from a provider", "", map[string]string{"persistence": "unknown"}, "does not say when it syncs it",
			"~*", "&*", "+@all", "-config"),
		Entry("other keys", "", map[string]string{"locking": "unknown", "guard": "unknown"}, "--key", "~order:*", "&*", "+@all"),
		Entry("those keys", "--key order:", map[string]string{"guard": "unknown"}, `"status":"ok"`, "~order:*", "&*", "+@all"),
		Entry("no scripts", "", map[string]string{"locking": "bad"}, "+@scripting", "~*", "&*", "+@all", "-@scripting"),
		Entry("no channels", "", map[string]string{"messages": "warn"}, "ACL SETUSER app +subscribe &redislock:inbox:*", "~*", "resetchannels", "+@all"),
		Entry("no SUBSCRIBE", "", map[string]string{"messages": "warn"}, "+subscribe", "~*", "&*", "+@all", "-subscribe"),
	)

	It("names commands that change what it has found", func(ctx SpecContext) {
		server, client := clitest.NewServer("maxmemory 100mb", "maxmemory-policy allkeys-lru", `save ""`)
		Expect(clitest.Run("redis://"+server.Addr(), "doctor")).To(gexec.Exit(2))
		for _, f := range checkup(clitest.Run("redis://"+server.Addr(), "doctor", "--json")) {
			for _, command := range regexp.MustCompile(`CONFIG SET [\w-]+ \w+`).FindAllString(f.Do, -1) {
				args := []any{}
				for word := range strings.FieldsSeq(command) {
					args = append(args, word)
				}
				Expect(client.Do(ctx, args...).Err()).To(Succeed(), command)
			}
		}
		session := clitest.Run("redis://"+server.Addr(), "doctor")
		Expect(session).To(gexec.Exit(0), clitest.Stdout(session))
	})

	It("breaks its lines between words on a terminal", func() {
		server, _ := clitest.NewServer("maxmemory 100mb", "maxmemory-policy volatile-ttl", `save ""`)
		user := clitest.NewTypist("redis://" + server.Addr())
		user.Types("stty cols 60; $R doctor; echo done\n")
		user.Sees(`\n +memory is short, it deletes`)
		user.Sees(`\n +→ CONFIG SET maxmemory-policy`)
		user.Sees("done")
		for line := range strings.Lines(string(user.Screen.Contents())) {
			line = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(strings.TrimRight(line, "\r\n"), "")
			Expect(term.Width(line)).To(BeNumerically("<=", 60), line)
		}
	})

	It("warns before the memory is full", func() {
		of := func(used string) finding {
			return facts{info: map[string]string{
				"maxmemory_policy": "noeviction", "maxmemory": "1000", "used_memory": used,
			}}.eviction()
		}
		Expect(of("900").Status).To(Equal(isOK))
		Expect(of("901").Status).To(Equal(isWarning))
	})

	It("recognises versions and forks", func() {
		of := func(info ...string) finding {
			f := facts{info: map[string]string{}}
			for i := 0; i < len(info); i += 2 {
				f.info[info[i]] = info[i+1]
			}
			return f.version()
		}
		Expect(of("redis_version", "5.0.14").Status).To(Equal(isBad))
		Expect(of("redis_version", "6.0.0").Status).To(Equal(isOK))
		Expect(of("redis_version", "7.2.4", "server_name", "valkey", "valkey_version", "9.1.2").Found).To(Equal("Valkey 9.1.2"))
		Expect(of().Status).To(Equal(isUnknown))
	})

	It("ends with 64 for a wrong command line", func() {
		Expect(clitest.Run("", "doctor", "--ttl", "99ms")).To(gexec.Exit(cli.Usage))
		Expect(clitest.Run("", "run", "-k", "a", "--ttl", "99ms", "--", "true")).To(gexec.Exit(cli.Usage), "the same limit")
		Expect(clitest.Run("redis://127.0.0.1:1", "doctor", "--ttl", "100ms")).To(gexec.Exit(cli.Unavailable))
		Expect(clitest.Run("", "doctor", "--key", "{a}")).To(gexec.Exit(cli.Usage))
		Expect(clitest.Run("", "doctor", "now")).To(gexec.Exit(cli.Usage))
	})
})
