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
	"github.com/redislock/redislock/internal/redistest"
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
		set(ctx, "order:7", tokenOf(1)+` {"host":"api-3","pid":4121,"program":"ship it","n":{"a":[1, 2]}}`, longTTL)
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

	It("shows every string with --all, and neither lines nor other types", func(ctx SpecContext) {
		zoo(ctx)
		clitest.ExpectGolden("ls-all", clitest.Stdout(ls("--all")))
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
		Expect(len(big.Metadata)).To(And(BeNumerically("<=", maxValue), BeNumerically(">", maxValue-100)))
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
		Entry("a whole token", []string{"--holder", tokenOf(2)}, "order:8"),
		Entry("the beginning of tokens", []string{"--holder", "0000", "order:*"}, "order:7", "order:8"),
		Entry("a longer one", []string{"--holder", tokenOf(2) + "x"}),
		Entry("a custom token", []string{"--holder", "job-1", "--all"}, "custom"),
		Entry("a field", []string{"--meta", "host=api-3"}, "order:7"),
		Entry("a number", []string{"--meta", "pid=4121"}, "order:7"),
		Entry("not a part of a field", []string{"--meta", "pid=412"}),
		Entry("some text", []string{"--meta", "step: 3"}, "order:8"),
		Entry("two at once", []string{"--meta", "host=api-3", "--meta", "step"}),
		Entry("what somebody waits for", []string{"--waiting"}, "order:7"),
		Entry("by the ttl", []string{"--sort", "ttl", "order:*"}, "order:7", "order:8"),
		Entry("most waiters first", []string{"--sort", "waiters", "order:*"}, "order:7", "order:8"),
		Entry("fewest waiters first", []string{"--sort", "-waiters", "order:*"}, "order:8", "order:7"),
		Entry("by holder", []string{"--sort", "-holder", "*[78]"}, "order:8", "order:7"),
		Entry("a few", []string{"--limit", "1", "order:*"}, "order:7"),
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

	It("says how many it has left out", func(ctx SpecContext) {
		for i := range 500 {
			set(ctx, fmt.Sprintf("k:%03d", i), tokenOf(i), longTTL)
		}
		session := ls("--limit", "3", "--no-header")
		Expect(keysShown(session)).To(Equal([]string{"k:000", "k:001", "k:002"}))
		Expect(clitest.Stderr(session)).To(HavePrefix("redislock: 497 more are not shown; "))
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
		Eventually(session.Interrupt()).Should(gexec.Exit(0))
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
		Eventually(session.Terminate()).Should(gexec.Exit(0))
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
		Entry("a limit below nothing", "--limit -1", "--limit", "-1"),
		Entry("an interval that is none", "invalid duration", "--watch=x"),
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
