package tree

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/faultproxy"
)

func TestTree(t *testing.T) { clitest.RunSpecs(t, "tree") }

// longTTL is read as the same for as long as a spec takes.
const longTTL = 76*time.Hour + 30*time.Minute

// of returns the metadata of a process on that host, whose lock is as old as longTTL.
func of(host string) string {
	since := time.Now().Add(-longTTL).UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{"host":%q,"pid":41,"user":"bob","command":"./ship","since":%q}`, host, since)
}

// tokenOf returns a token like those of the library, the same in each run.
func tokenOf(name string) string { return name + strings.Repeat("_", keyname.TokenLength-len(name)) }

// hold sets keys to the value of a lock.
func hold(ctx context.Context, client redis.Cmdable, name, metadata string, keys ...string) {
	GinkgoHelper()
	for _, key := range keys {
		Expect(client.Set(ctx, key, strings.TrimSpace(tokenOf(name)+" "+metadata), longTTL).Err()).To(Succeed())
	}
}

// waiter is a waiter in the lines of some keys.
type waiter struct {
	name  string // of its token, and of its process
	wants string // keys, one word each
	holds string // names of locks, and their keys, as in "one=a,b two=c"
	ago   time.Duration
	limit int // how many holders it would let the keys have; 0 for 1, -1 for no limit
}

// stand puts a waiter into its lines.
func (w waiter) stand(ctx context.Context, client redis.Cmdable) {
	GinkgoHelper()
	const life = 600 // seconds
	now, err := client.Time(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	wants := strings.Fields(w.wants)
	var holds []script.Holding
	for lock := range strings.FieldsSeq(w.holds) {
		name, keys, _ := strings.Cut(lock, "=")
		holds = append(holds, script.Holding{Token: tokenOf(name), Keys: strings.Split(keys, ",")})
	}
	names, count := script.WriteNames(wants, holds), fmt.Sprint(len(wants))
	if w.limit != 0 {
		count = "00"
	}
	id := w.name + ".1/1"
	ticket := float64(now.Add(-w.ago).UnixMicro())
	entry := fmt.Sprintf("%s %s 60000 0+%d %s%s %s", id, count, len(names), names, tokenOf(w.name), of("host-"+w.name))
	mark := -float64(now.Add(500*time.Second).UnixMilli()*4096 + 2*life)
	for _, key := range wants {
		members := []redis.Z{{Score: ticket, Member: entry}, {Score: mark, Member: "~" + w.name + ".1"}}
		switch {
		case w.limit > 0:
			members = append(members, redis.Z{Score: -float64(w.limit), Member: "=" + id})
		case w.limit < 0:
			members = append(members, redis.Z{Score: -ticket, Member: "=" + id})
		}
		Expect(client.ZAdd(ctx, keyname.LineOf(key), members...).Err()).To(Succeed())
	}
}

// stage makes locks and waiters: a tree of three levels, a circle, a key that nobody holds, and a shared key.
func stage(ctx context.Context, client redis.Cmdable) {
	GinkgoHelper()
	hold(ctx, client, "ann", of("api-1"), "order:7", "stock:42")
	hold(ctx, client, "ben", of("api-2"), "user:9")
	hold(ctx, client, "cat", "", "circle:a")
	hold(ctx, client, "dan", "job 7", "circle:b")
	for _, w := range []waiter{
		{name: "ewa", wants: "order:7", ago: 4 * time.Hour, holds: "ben=user:9"},
		{name: "fay", wants: "stock:42 stock:43", ago: 3 * time.Hour},
		{name: "gus", wants: "user:9", ago: 2 * time.Hour, holds: "other=cache:1,cache:2"},
		{name: "hal", wants: "circle:b", ago: 2 * time.Hour, holds: "cat=circle:a"},
		{name: "ida", wants: "circle:a", ago: 2 * time.Hour, holds: "dan=circle:b"},
	} {
		w.stand(ctx, client)
	}
}

var _ = Describe("tree", func() {
	on := clitest.OnServer()

	tree := func(args ...string) string {
		GinkgoHelper()
		session := on.Run(append([]string{"tree"}, args...)...)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		return clitest.Stdout(session)
	}
	lines := func(args ...string) []string {
		GinkgoHelper()
		return strings.Split(strings.TrimSuffix(tree(args...), "\n"), "\n")
	}

	It("shows who waits for whom, and who waits in a circle", func(ctx SpecContext) {
		stage(ctx, on.Client)
		clitest.ExpectGolden("tree", tree())
	})

	It("prints the same as JSON, an object a line", func(ctx SpecContext) {
		stage(ctx, on.Client)
		clitest.ExpectGolden("tree-json", tree("--json"))
	})

	It("prints the same as a graph", func(ctx SpecContext) {
		stage(ctx, on.Client)
		printed := tree("--dot")
		clitest.ExpectGolden("tree-dot", printed)
		Expect(parseDot(printed)).To(Succeed())
	})

	DescribeTable("shows only the trees that are asked for",
		func(ctx SpecContext, args string, roots ...string) {
			stage(ctx, on.Client)
			hold(ctx, on.Client, "jim", "", "alone")
			var found []string
			for _, line := range lines(strings.Fields(args)...) {
				if line != "" && strings.ContainsAny(line[:1], "abcdefghijklmnopqrstuvwxyz") && !strings.HasPrefix(line, "circle 1") {
					found = append(found, line)
				}
			}
			Expect(found).To(HaveLen(len(roots)))
			for i, root := range roots {
				Expect(found[i]).To(HavePrefix(root))
			}
		},
		Entry("a key", "order:7", "bob@api-1"),
		Entry("the key of a lock below: what its caller waits for is in another line", "user:9", "bob@api-1"),
		Entry("a key of a circle", "circle:b", "token cat___… holds circle:a"),
		Entry("a key that nobody holds", "stock:43", "nobody holds stock:43; 1 waits"),
		Entry("two keys", "user:9 circle:a", "bob@api-1", "token cat"),
		Entry("a key that nobody waits for", "alone", "token jim___… holds alone, 3d04h left; nobody waits"),
		Entry("a free key", "free", "nobody holds free; nobody waits"),
		Entry("the metadata of a holder", "--meta host=api-1", "bob@api-1"),
		Entry("the metadata of a waiter", "--meta host=host-fay", "bob@api-1", "nobody holds stock:43"),
		Entry("a part of the metadata", "--meta job", "token cat"),
		Entry("the beginning of a token", "--token ben_", "bob@api-1"),
		Entry("both of one", "--token ben_ --meta host=api-2", "bob@api-1"),
		Entry("not of two", "--token ben_ --meta host=api-1"),
	)

	It("shows the circle below a key, and no other", func(ctx SpecContext) {
		stage(ctx, on.Client)
		Expect(tree("order:7")).NotTo(ContainSubstring("circle"))
		Expect(tree("circle:b")).To(HavePrefix("circle 1: 2 wait for each other"))
	})

	It("shows no circle that is gone at a second look", func(ctx SpecContext) {
		stage(ctx, on.Client)
		tree() // loads the script
		proxy, err := faultproxy.New(on.Addr())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Close)
		isScript := faultproxy.Command("evalsha")
		scripts := make(chan int, 2) // how many there were
		count := 0
		proxy.Add(faultproxy.Rule{Match: func(args []string) bool {
			if isScript(args) {
				count++
				scripts <- count
			}
			return isScript(args) && count == 2
		}, Action: faultproxy.DelayRequest(time.Second)})
		session := clitest.Begin("redis://"+proxy.Addr(), "tree", "circle:a")
		Eventually(scripts).Should(Receive(Equal(1)))
		Eventually(scripts).Should(Receive(Equal(2)))
		Expect(on.Client.Del(ctx, keyname.LineOf("circle:a")).Err()).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal("job 7 holds circle:b, 3d04h left; 1 waits\n" +
			"└─ bob@host-hal, pid 41 (./ship) waits for circle:b for 2h00m; holds circle:a\n"))
	})

	It("says on stderr that nobody waits", func(ctx SpecContext) {
		hold(ctx, on.Client, "ann", "", "order:7")
		for args, want := range map[string]string{
			"":                `redislock: nobody waits in a line; "redislock ls" lists the locks` + "\n",
			"--json":          `redislock: nobody waits in a line; "redislock ls" lists the locks` + "\n",
			"--meta host=api": "redislock: nobody waits in a line there\n",
		} {
			session := on.Run(append([]string{"tree"}, strings.Fields(args)...)...)
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(clitest.Stderr(session)).To(Equal(want))
		}
	})

	It("shows the waiters of the library", func(ctx SpecContext) {
		clitest.Hold(on.Client, clitest.Bob, "order:7")
		clitest.WaitInLine(ctx, on.Client, "order:7")
		Expect(tree()).To(MatchRegexp(
			`^bob@api-3, pid 4121 \(\./ship 7\) holds order:7 for .*, 5\ds left; 1 waits\n└─ process .{8}… waits for order:7 for [0-9.]+m?s\n$`))
	})

	It("shows no waiters of processes that show no signs of life", func(ctx SpecContext) {
		hold(ctx, on.Client, "ann", "", "order:7", "order:8")
		clitest.Stand(ctx, on.Client, "order:7", "dead.1", "", -time.Second, time.Hour)
		clitest.Stand(ctx, on.Client, "order:8", "late.1", "", 100*time.Second, time.Hour)
		Expect(tree()).To(Equal("token ann___… holds order:8, 3d04h left; 1 waits\n" +
			"└─ process late waits for order:8 for 1h00m, late\n"))
	})

	It("shows who would share a key, and each line once", func(ctx SpecContext) {
		for i, name := range []string{"ann", "ben"} {
			_, err := redislock.ObtainMulti(ctx, on.Client, []string{"gpu"}, longTTL-time.Duration(i)*24*time.Hour, &redislock.Options{
				Token: tokenOf(name), Metadata: "job " + name, Permits: map[string]int{"gpu": 2},
			})
			Expect(err).NotTo(HaveOccurred())
		}
		waiter{name: "cat", wants: "gpu", ago: 3 * time.Hour, limit: 2}.stand(ctx, on.Client)
		waiter{name: "dan", wants: "gpu", ago: 2 * time.Hour, limit: -1}.stand(ctx, on.Client)
		waiter{name: "eve", wants: "gpu", ago: time.Hour}.stand(ctx, on.Client)
		Expect(tree()).To(Equal("job ann holds gpu, 3d04h left, gpu has 2 of 2 holders; 3 wait\n" +
			"├─ bob@host-cat, pid 41 (./ship) waits to be one of 2 holders of gpu for 3h00m\n" +
			"├─ bob@host-dan, pid 41 (./ship) waits to share gpu for 2h00m\n" +
			"└─ bob@host-eve, pid 41 (./ship) waits for gpu for 1h00m\n" +
			"job ben holds gpu, 2d04h left, gpu has 2 of 2 holders; 3 wait, see above for gpu\n"))
	})

	It("names what is not a lock", func(ctx SpecContext) {
		Expect(on.Client.LPush(ctx, "list", "x").Err()).To(Succeed())
		waiter{name: "ann", wants: "list", ago: time.Hour}.stand(ctx, on.Client)
		Expect(lines()[0]).To(Equal("list is taken by something that is not a lock; 1 waits"))
	})

	It("never shows a whole token", func(ctx SpecContext) {
		stage(ctx, on.Client)
		Expect(on.Client.Set(ctx, "short", "abc", longTTL).Err()).To(Succeed())
		clitest.Stand(ctx, on.Client, "short", "inbox.1", "", 500*time.Second, time.Hour)
		for _, flag := range []string{"--lines=1000", "--json", "--dot"} {
			printed := tree(flag)
			for _, name := range []string{"ann", "ben", "cat", "dan", "ewa", "fay", "gus", "hal", "ida"} {
				Expect(printed).NotTo(ContainSubstring(tokenOf(name)))
			}
			Expect(printed).NotTo(MatchRegexp(`\babc\b`))
		}
	})

	It("escapes what would reach the terminal, and what Graphviz would read", func(ctx SpecContext) {
		evil := "a\x1b[2J\u202e\"\\N<b>"
		Expect(on.Client.Set(ctx, evil, tokenOf("ann")+" \x1b]0;x\x07\n\"]; evil [", longTTL).Err()).To(Succeed())
		waiter{name: "b", wants: evil + " " + "x{x", ago: time.Hour}.stand(ctx, on.Client)
		clitest.Stand(ctx, on.Client, evil, "c.1", "\x1b[31m\"\\", 500*time.Second, time.Minute)
		printed := tree()
		Expect(printed).To(HavePrefix(`\x1b]0;x\x07\n"]; evil [ holds a\x1b[2J\u202e"\\N<b>, 3d04h left; 2 wait` + "\n"))
		Expect(printed + tree("--json") + tree("--dot")).NotTo(MatchRegexp("[\x00-\x08\x0b-\x1f\x7f\u202e]"))
		Expect(parseDot(tree("--dot"))).To(Succeed())
		for _, line := range lines("--json") {
			Expect(json.Valid([]byte(line))).To(BeTrue(), line)
		}
	})

	It("shows what it may, and says what it may not", func(ctx SpecContext) {
		stage(ctx, on.Client)
		Expect(on.Client.Do(ctx, "ACL", "SETUSER", "ops", "on", ">pw", "~order:*", "&*", "+@all").Err()).To(Succeed())
		session := clitest.Run("redis://ops:pw@"+on.Addr(), "tree")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal("bob@api-1, pid 41 (./ship) holds order:7 for 3d04h, 3d04h left; 1 waits\n" +
			"└─ bob@host-ewa, pid 41 (./ship) waits for order:7 for 4h00m; holds user:9\n"))
		Expect(clitest.Stderr(session)).To(HavePrefix("redislock: 5 keys could not be read: "))
		Expect(clitest.Stderr(session)).To(ContainSubstring("NOPERM"))
	})

	It("refuses a command line that makes no sense", func() {
		for args, want := range map[string]string{
			"--json --dot":     "--json and --dot exclude each other",
			"--dot --watch":    "--dot prints one graph; leave out --watch",
			"--waiters -1":     "--waiters -1 is below 0",
			"--watch=1ms":      "--watch=1ms is too short",
			"--watch 5s":       `"5s" would be a KEY; write the interval with =, as in --watch=5s`,
			"a:redislock:line": `names that end in ":redislock:line" are reserved`,
		} {
			session := on.Run(append([]string{"tree"}, strings.Fields(args)...)...)
			Expect(session).To(gexec.Exit(64), args)
			Expect(clitest.Stderr(session)).To(ContainSubstring(want))
		}
		Expect(on.Run("tree", "")).To(gexec.Exit(64))
	})

	It("prints one after the other with --watch where there is no terminal, until a signal", func(ctx SpecContext) {
		stage(ctx, on.Client)
		session := clitest.Begin(on.URL, "tree", "--watch=100ms", "--json", "order:7")
		Eventually(session.Out.Contents).Should(ContainSubstring(`"order:7"`))
		waiter{name: "new", wants: "order:7"}.stand(ctx, on.Client)
		Eventually(session.Out.Contents).Should(ContainSubstring(`"process":"new"`))
		Eventually(session.Interrupt()).Should(gexec.Exit(130))
		Expect(clitest.Stdout(session)).To(HavePrefix(`{"kind":"lock","at":"20`))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	It("goes on watching when Redis was away", func(ctx SpecContext) {
		stage(ctx, on.Client)
		proxy, err := faultproxy.New(on.Addr())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Close)
		session := clitest.Begin("redis://"+proxy.Addr(), "tree", "--watch=100ms")
		Eventually(session.Out.Contents).Should(ContainSubstring("order:7"))
		refusal := proxy.Add(faultproxy.Rule{Action: faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")})
		Eventually(session.Err.Contents).Should(ContainSubstring("it is still loading its data"))
		refusal.Remove()
		before := len(session.Out.Contents())
		Eventually(func() string { return string(session.Out.Contents()[before:]) }).Should(ContainSubstring("order:7"))
		Eventually(session.Interrupt()).Should(gexec.Exit(130))
	})
})
