package ls

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/testing/redistest"
)

func TestLS(t *testing.T) { clitest.RunSpecs(t, "ls") }

// longTTL is read as the same for as long as a spec takes.
const longTTL = 76*time.Hour + 30*time.Minute

// tokenOf returns a token like those of the library, the same in each run.
func tokenOf(n int) string { return fmt.Sprintf("%022d", n) }

// keysShown returns the first column of what ls prints.
func keysShown(session *gexec.Session) []string {
	keys := []string{}
	for line := range strings.Lines(clitest.Stdout(session)) {
		keys = append(keys, strings.Fields(line)[0])
	}
	return keys
}

var _ = Describe("ls", func() {
	var (
		server *redistest.Server
		client *redis.Client
		url    string
	)

	BeforeEach(func() {
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
	})

	ls := func(args ...string) *gexec.Session {
		GinkgoHelper()
		session := clitest.Run(url, append([]string{"ls"}, args...)...)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		return session
	}
	set := func(ctx context.Context, key, value string, ttl time.Duration) {
		GinkgoHelper()
		Expect(client.Set(ctx, key, value, ttl).Err()).To(Succeed())
	}

	// zoo fills the database with locks of all kinds, and with what is none.
	zoo := func(ctx context.Context) {
		GinkgoHelper()
		set(ctx, "order:7", tokenOf(1)+` {"host":"api-3","pid":4121,"user":"bob","command":"./ship 7","since":"`+
			time.Now().Add(-longTTL).UTC().Format(time.RFC3339)+`","n":{"a":[1, 2]}}`, longTTL)
		set(ctx, "order:8", tokenOf(2)+" step: 3", longTTL)
		set(ctx, "{stock}:42", tokenOf(3), longTTL)
		set(ctx, "evil\x1b[2J\n\u202e:1", tokenOf(4)+" {\"a\":\"\x7f\u009b\\u001b\\u202e\"} \x1b]0;x\x07", longTTL)
		set(ctx, "binary:\xff\xfe", tokenOf(5)+" \xff\x00", longTTL)
		set(ctx, "big", tokenOf(6)+" "+strings.Repeat("é", 1<<20), longTTL)
		clitest.WaitInLine(ctx, client, "order:7")

		set(ctx, "custom", "job-1 more", longTTL)
		set(ctx, "endless", tokenOf(7), 0)
		set(ctx, "fence", "42", 0)
		set(ctx, "page", strings.Repeat("x", 1<<20), longTTL)
		set(ctx, "name:redislock:line", tokenOf(8), longTTL)
		Expect(client.LPush(ctx, "list", tokenOf(9)).Err()).To(Succeed())
		Expect(client.Expire(ctx, "list", longTTL).Err()).To(Succeed())
		Expect(client.HSet(ctx, "hash", "f", "v").Err()).To(Succeed())
	}

	It("shows what looks like a lock, made safe to print", func(ctx SpecContext) {
		zoo(ctx)
		clitest.ExpectGolden("ls", clitest.Stdout(ls()))
	})

	It("counts only waiters of processes that show signs of life", func(ctx SpecContext) {
		for i, key := range []string{"a", "b", "c"} {
			set(ctx, key, tokenOf(i), longTTL)
			clitest.Stand(ctx, client, key, "dead.1", "", -time.Second, 9*time.Hour)
			clitest.Stand(ctx, client, key, "early.1", "", time.Hour, 8*time.Hour)
			clitest.Stand(ctx, client, key, "unmarked.1", "", 0, 7*time.Hour)
		}
		clitest.Stand(ctx, client, "b", "alive.1", "", 500*time.Second, 6*time.Hour, 5*time.Hour)
		clitest.Stand(ctx, client, "b", "alive.2", "", 100*time.Second, 4*time.Hour)
		Expect(clitest.Stdout(ls("-o", "template={key} {line}"))).To(Equal("a 0\nb 3\nc 0\n"))
		Expect(clitest.Stdout(ls("--waiting", "-o", "name"))).To(Equal("b\n"))
	})

	It("shows every string with --all, and neither lines nor other types", func(ctx SpecContext) {
		zoo(ctx)
		clitest.ExpectGolden("ls-all", clitest.Stdout(ls("--all")))
	})

	It("shows the locks of bsm/redislock and redsync, and who holds them if they say so", func(ctx SpecContext) {
		set(ctx, "bsm", "q83vEjRWeJCrze8SNFZ4kA", longTTL)
		set(ctx, "bsm:meta", `q83vEjRWeJCrze8SNFZ4kA{"host":"api-3", "pid":4121, "user":"bob"}`, longTTL)
		set(ctx, "redsync", "q83v+jRWeJCrze8SNFZ/kA==", longTTL)
		rows := func(args ...string) string { return clitest.Stdout(ls(args...)) }
		Expect(rows("-o", "template={key} {token} {holder} {pid}")).To(Equal(`bsm q83vEjRWeJCrze8SNFZ4kA` + "  \n" +
			`bsm:meta q83vEjRWeJCrze8SNFZ4kA bob@api-3 4121` + "\n" + `redsync q83v+jRWeJCrze8SNFZ/kA==` + "  \n"))
		Expect(rows("-o", "name", "--meta", "host=api-3")).To(Equal("bsm:meta\n"))

		clitest.WaitInLine(ctx, client, "bsm:meta") // so that the library is asked
		Expect(rows("-o", "template={key} {holder} {line}", "bsm:meta")).To(Equal("bsm:meta bob@api-3 1\n"))
	})

	It("prints the same as JSON, an object a line", func(ctx SpecContext) {
		zoo(ctx)
		printed := clitest.Stdout(ls("--json", "--all", "[^bp]*")) // without the long values
		clitest.ExpectGolden("ls-json", printed)
		for line := range strings.Lines(printed) {
			var got show.StatusJSON
			Expect(json.Unmarshal([]byte(line), &got)).To(Succeed())
			if got.TTL != nil {
				Expect(time.Duration(*got.TTL) * time.Millisecond).To(BeNumerically("~", longTTL, time.Minute))
			}
		}
	})

	It("reads no more than 4 KiB of a value", func(ctx SpecContext) {
		zoo(ctx)
		Expect(client.ConfigResetStat(ctx).Err()).To(Succeed())
		var big show.StatusJSON
		Expect(json.Unmarshal(ls("--json", "big").Out.Contents(), &big)).To(Succeed())
		Expect(len(big.Metadata)).To(And(BeNumerically("<=", 4096), BeNumerically(">", 4000)))
		Expect(strings.Trim(big.Metadata, "é")).To(BeEmpty(), "no character is cut in two")
		Expect(big.MetadataCut).To(BeTrue())
		Expect(big.Waiters).To(BeNil())

		ls("--all")
		sent := clitest.InfoOf(ctx, client, "stats")["total_net_output_bytes"]
		var bytes int
		Expect(fmt.Sscan(sent, &bytes)).To(Equal(1))
		Expect(bytes).To(BeNumerically("<", 100_000), "two values have a million bytes")
	})

	It("gives bytes that are no text in base64, too", func(ctx SpecContext) {
		zoo(ctx)
		var got show.StatusJSON
		Expect(json.Unmarshal(ls("--json", "binary:*").Out.Contents(), &got)).To(Succeed())
		Expect(got.Key).To(Equal("binary:\ufffd\ufffd"))
		Expect(got.KeyBase64).To(Equal("YmluYXJ5Ov/+"))
		Expect(got.MetadataBase64).To(Equal("/wA="))
	})

	DescribeTable("shows only what is asked for",
		func(ctx SpecContext, args []string, keys ...string) {
			zoo(ctx)
			Expect(keysShown(ls(append([]string{"--no-header"}, args...)...))).To(Equal(append([]string{}, keys...)))
		},
		Entry("a pattern", []string{"order:*"}, "order:7", "order:8"),
		Entry("a key", []string{"order:8"}, "order:8"),
		Entry("a key of another kind", []string{"list"}),
		Entry("a key that is not there", []string{"order:9"}),
		Entry("a key that no lock can have", []string{"name:redislock:line", "--all"}),
		Entry("a whole token", []string{"--token", tokenOf(2)}, "order:8"),
		Entry("the beginning of tokens", []string{"--token", "0000", "order:*"}, "order:7", "order:8"),
		Entry("a longer one", []string{"--token", tokenOf(2) + "x"}),
		Entry("a custom token", []string{"--token", "job-1", "--all"}, "custom"),
		Entry("a field", []string{"--meta", "host=api-3"}, "order:7"),
		Entry("a number", []string{"--meta", "pid=4121"}, "order:7"),
		Entry("not a part of a field", []string{"--meta", "pid=412"}),
		Entry("some text", []string{"--meta", "step: 3"}, "order:8"),
		Entry("two at once", []string{"--meta", "host=api-3", "--meta", "step"}),
		Entry("what somebody waits for", []string{"--waiting"}, "order:7"),
		Entry("by the ttl", []string{"--sort", "ttl", "order:*"}, "order:7", "order:8"),
		Entry("most waiters first", []string{"--sort", "line", "order:*"}, "order:7", "order:8"),
		Entry("fewest waiters first", []string{"--sort", "-line", "order:*"}, "order:8", "order:7"),
		Entry("by holder", []string{"--sort", "-holder", "*[78]"}, "order:8", "order:7"),
		Entry("oldest first", []string{"--sort", "age", "order:*"}, "order:7", "order:8"),
		Entry("a few", []string{"--limit", "1", "--sort", "key", "order:*"}, "order:7"),
	)

	It("sorts by ttl, and what has none last", func(ctx SpecContext) {
		set(ctx, "a", tokenOf(1), 0)
		set(ctx, "b", tokenOf(2), time.Hour)
		set(ctx, "c", tokenOf(3), time.Minute)
		Expect(keysShown(ls("--no-header", "--all", "--sort", "ttl"))).To(Equal([]string{"c", "b", "a"}))
		Expect(keysShown(ls("--no-header", "--all", "--sort", "-ttl"))).To(Equal([]string{"a", "b", "c"}))
	})

	It("does not blame Redis for an output that cannot be written", func(ctx SpecContext) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			Skip("there is no /dev/full")
		}
		defer full.Close()
		set(ctx, "a", tokenOf(1), longTTL)
		for _, order := range []string{"key", "none"} {
			cmd := clitest.Command([]string{"REDIS_URL=" + url}, "ls", "--json", "--sort", order)
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = full, &said
			Expect(cmd.Run()).To(HaveOccurred())
			Expect(said.String()).To(Equal("redislock: write /dev/stdout: no space left on device\n"))
			Expect(cmd.ProcessState.ExitCode()).To(Equal(1))
		}
	})

	It("ends without a word when nobody reads any longer", func(ctx SpecContext) {
		for i := range 500 {
			set(ctx, fmt.Sprintf("k:%03d", i), tokenOf(i), longTTL)
		}
		for _, flags := range []string{"--watch=100ms", "--json --sort none --watch=100ms", "--json --sort none"} {
			cmd := clitest.Command([]string{"REDIS_URL=" + url}, strings.Fields("ls "+flags)...)
			var said strings.Builder
			cmd.Stderr = &said
			stdout, err := cmd.StdoutPipe()
			Expect(err).NotTo(HaveOccurred())
			Expect(stdout.Close()).To(Succeed())
			_ = cmd.Run()
			Expect(cmd.ProcessState.ExitCode()).To(Equal(141), flags)
			Expect(said.String()).To(BeEmpty(), flags)
		}
	})

	It("looks at all keys to sort them, and says how many it has left out", func(ctx SpecContext) {
		for i := range 500 {
			set(ctx, fmt.Sprintf("k:%03d", i), tokenOf(i), longTTL)
		}
		session := ls("--limit", "3", "--no-header", "--sort", "key")
		Expect(keysShown(session)).To(Equal([]string{"k:000", "k:001", "k:002"}))
		Expect(clitest.Stderr(session)).To(HavePrefix("redislock: 497 more are not listed; "))
	})

	DescribeTable("stops when it has found --limit locks",
		func(ctx SpecContext, flags string) {
			for i := range 5000 {
				set(ctx, fmt.Sprintf("k:%04d", i), tokenOf(i), longTTL)
			}
			Expect(client.ConfigResetStat(ctx).Err()).To(Succeed())
			session := ls(strings.Fields(flags)...)
			Expect(keysShown(session)).To(HaveLen(3))
			Expect(clitest.Stderr(session)).To(BeEmpty())
			Expect(clitest.InfoOf(ctx, client, "commandstats")["cmdstat_scan"]).To(HavePrefix("calls=1,"))
		},
		Entry("a table", "--limit 3 --no-header"),
		Entry("names as they are found", "--limit 3 -o name --sort none"),
		Entry("JSON", "--limit 3 --json"),
	)

	It("needs no round trip for a key, unless somebody waits for it", func(ctx SpecContext) {
		for i := range 400 {
			set(ctx, fmt.Sprintf("k:%03d", i), tokenOf(i)+` {"host":"api-3"}`, longTTL)
		}
		clitest.WaitInLine(ctx, client, "k:007")
		Expect(client.ConfigResetStat(ctx).Err()).To(Succeed())
		Expect(keysShown(ls("--no-header", "--meta", "host=api-3"))).To(HaveLen(400))
		var scripts int
		for name, stat := range clitest.InfoOf(ctx, client, "commandstats") {
			var calls int
			if strings.HasPrefix(name, "cmdstat_eval") {
				_, err := fmt.Sscanf(stat, "calls=%d,", &calls)
				Expect(err).NotTo(HaveOccurred())
			}
			scripts += calls
		}
		Expect(scripts).To(BeNumerically("<=", 4), "two for ls, and what the waiter does meanwhile")
	})

	It("says on stderr that there is nothing", func() {
		for _, flags := range []string{"", "--json", "-o name"} {
			session := ls(strings.Fields(flags)...)
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(clitest.Stderr(session)).To(HavePrefix("redislock: no lock found; --all also lists"))
		}
		session := ls("order:*", "--all", "-o", "json")
		Expect(clitest.Stdout(session)).To(Equal("[]\n"))
		Expect(clitest.Stderr(session)).To(Equal("redislock: no lock matches \"order:*\"\n"))
	})

	It("prints what -o wants", func(ctx SpecContext) {
		zoo(ctx)
		Expect(clitest.Stdout(ls("-o", "name", "[eo]*"))).To(Equal("evil\\x1b[2J\\n\\u202e:1\norder:7\norder:8\n"))
		Expect(clitest.Stdout(ls("order:*", "-o", `template={key}\t{holder} {pid} {fields.n}, line: {line}\\`))).To(Equal(
			"order:7\tbob@api-3 4121 {\"a\":[1, 2]}, line: 1\\\norder:8\tstep: 3  , line: 0\\\n"))
		var list []show.StatusJSON
		Expect(json.Unmarshal(ls("order:*", "-o", "json").Out.Contents(), &list)).To(Succeed())
		Expect(list).To(HaveLen(2))
		Expect(*list[0].HeldSince).To(BeTemporally("~", time.Now().Add(-longTTL), time.Minute))
		for _, flag := range []string{"-ojsonl", "--json"} {
			Expect(clitest.Stdout(ls("order:8", flag))).To(MatchRegexp(`^{"key":"order:8",.*}\n$`))
		}
	})

	It("shows token and metadata with --wide", func(ctx SpecContext) {
		zoo(ctx)
		Expect(clitest.Stdout(ls("--wide", "order:7"))).To(MatchRegexp(
			`^KEY .* LINE  TOKEN  +METADATA\norder:7  bob@api-3  4121  \./ship 7  3d04h  3d04h     1  0{21}1  host=api-3 pid=4121 user=bob`))
	})

	It("never runs KEYS, and finds each of many keys once", func(ctx SpecContext) {
		pipe := client.Pipeline()
		for i := range 5000 {
			pipe.Set(ctx, fmt.Sprintf("cache:%d", i), "something", time.Hour)
		}
		for i := range 300 {
			pipe.Set(ctx, fmt.Sprintf("lock:%d", i), tokenOf(i), time.Hour)
		}
		_, err := pipe.Exec(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(client.ConfigResetStat(ctx).Err()).To(Succeed())
		Expect(keysShown(ls("--no-header"))).To(HaveLen(300))
		commands := clitest.InfoOf(ctx, client, "commandstats")
		Expect(commands).To(HaveKey("cmdstat_scan"))
		Expect(commands).NotTo(HaveKey("cmdstat_keys"))
	})

	It("shows what it may, and says what it may not", func(ctx SpecContext) {
		set(ctx, "order:7", tokenOf(1), longTTL)
		set(ctx, "secret:1", tokenOf(2), longTTL)
		Expect(client.Do(ctx, "ACL", "SETUSER", "ops", "on", ">pw", "~order:*", "&*", "+@all").Err()).To(Succeed())
		url = "redis://ops:pw@" + server.Addr()
		session := ls("--no-header")
		Expect(keysShown(session)).To(Equal([]string{"order:7"}))
		Expect(clitest.Stderr(session)).To(HavePrefix("redislock: 1 keys could not be read: NOPERM"))
		Expect(strings.Count(clitest.Stderr(session), "NOPERM")).To(Equal(1))
	})

	It("prints one table after the other with --watch where there is no terminal, until a signal", func(ctx SpecContext) {
		set(ctx, "order:7", tokenOf(1), longTTL)
		session := clitest.Begin(url, "ls", "--watch=100ms", "--json")
		Eventually(session.Out.Contents).Should(ContainSubstring(`"order:7"`))
		set(ctx, "order:8", tokenOf(2), longTTL)
		Eventually(session.Out.Contents).Should(ContainSubstring(`"order:8"`))
		Expect(server.Pause()).To(Succeed())
		Expect(server.Resume()).To(Succeed())
		Eventually(session.Interrupt()).Should(gexec.Exit(130))
		Expect(clitest.Stdout(session)).To(HavePrefix(`{"at":"20`))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	It("goes on watching when Redis was away", func(ctx SpecContext) {
		set(ctx, "order:7", tokenOf(1), longTTL)
		session := clitest.Begin(url, "ls", "--watch=100ms")
		Eventually(session.Out.Contents).Should(ContainSubstring("order:7"))
		Expect(server.Kill()).To(Succeed())
		Eventually(session.Err.Contents).Should(ContainSubstring("the connection is refused"))
		Expect(server.Restart()).To(Succeed())
		Eventually(ctx, func() error { return client.Set(ctx, "order:9", tokenOf(3), longTTL).Err() }).Should(Succeed())
		Eventually(session.Out.Contents).Should(ContainSubstring("order:9"))
		Eventually(session.Terminate()).Should(gexec.Exit(143))
	})

	It("goes on watching with a password that was replaced", func(ctx SpecContext) {
		user := clitest.NewUser(ctx, client)
		set(ctx, "order:7", tokenOf(1), longTTL)
		session := clitest.Begin(user.URL(server.Addr()), "ls", "--watch=100ms", "--password-file", user.File)
		Eventually(session.Out.Contents).Should(ContainSubstring("order:7"))
		user.Replace(ctx, "secret-2")
		set(ctx, "order:9", tokenOf(3), longTTL)
		Eventually(session.Out.Contents).Should(ContainSubstring("order:9"))
		Eventually(session.Terminate()).Should(gexec.Exit(143))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	DescribeTable("refuses what it cannot use, in one line",
		func(words string, args ...string) {
			session := clitest.Run(url, append([]string{"ls"}, args...)...)
			Expect(session).To(gexec.Exit(cli.Usage))
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(clitest.Stderr(session)).To(And(HavePrefix("redislock: "), ContainSubstring(words), HaveSuffix("\n")))
			Expect(strings.Count(clitest.Stderr(session), "\n")).To(Equal(1))
		},
		Entry("two patterns", "quotes", "a", "b"),
		Entry("an order that it does not know", `--sort "size"`, "--sort", "size"),
		Entry("an order that has no reverse", `--sort "-none"`, "--sort", "-none"),
		Entry("an order of an earlier name", `use key, age, ttl, line`, "--sort", "waiters"),
		Entry("a format that it does not know", "use table, json, jsonl, name or template=TEXT", "-o", "yaml"),
		Entry("a template without an end", "without a }", "-o", "template={key"),
		Entry("a template with an unknown name", "has {colour}", "-o", "template={colour}"),
		Entry("an array again and again", "use -o jsonl", "-o", "json", "--watch"),
		Entry("two formats", "exclude each other", "-o", "name", "--json"),
		Entry("names that are wide", "--wide is for tables", "-o", "name", "--wide"),
		Entry("a limit below nothing", "--limit -1", "--limit", "-1"),
		Entry("an interval that is none", "is not a duration", "--watch=x"),
		Entry("one that is too short", "100ms", "--watch=1ms"),
		Entry("one that would be a pattern", "--watch=5s", "--watch", "5s"),
	)
})

var _ = Describe("ls on a Cluster", func() {
	It("shows the locks of all masters, also by the address of one of them", func(ctx SpecContext) {
		clitest.NeedServer()
		cluster, err := redistest.StartCluster(3, 0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Close)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		DeferCleanup(client.Close)
		var keys []string
		for i := range 30 {
			key := fmt.Sprintf("order:%02d", i)
			keys = append(keys, key)
			Expect(client.Set(ctx, key, tokenOf(i), time.Hour).Err()).To(Succeed())
		}
		clitest.WaitInLine(ctx, client, "order:07")
		addrs := cluster.Addrs()
		for _, url := range []string{
			"redis+cluster://" + addrs[0] + "," + addrs[1],
			"redis+cluster://127.0.0.1:1," + addrs[1], // the first of them is down
			"redis://" + addrs[2],
			"redis://" + addrs[2] + "?protocol=2",
		} {
			session := clitest.Run(url, "ls", "--no-header")
			Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
			Expect(keysShown(session)).To(Equal(keys), url)
		}
		session := clitest.Run("redis://"+addrs[0], "ls", "--waiting", "--no-header")
		Expect(keysShown(session)).To(Equal([]string{"order:07"}))

		session = clitest.Run("redis://"+addrs[0], "doctor")
		for _, addr := range addrs {
			Expect(clitest.Stdout(session)).To(MatchRegexp(`ok +%s +locking`, addr))
		}
		Expect(clitest.Stdout(session)).To(MatchRegexp(`ok +messages`))
		Expect(clitest.Stdout(session)).To(ContainSubstring("{order:7}:stock"))
	})
})
