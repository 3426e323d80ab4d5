//go:build unix

package guard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/incarnation"
)

func TestGuard(t *testing.T) { clitest.RunSpecs(t, "guard") }

// another is the id of a term that has ended.
var another = strings.Repeat("0", 40)

var _ = Describe("redislock guard", func() {
	var (
		server   *miniredis.Miniredis
		identity *incarnation.Server
		url      string
	)

	BeforeEach(func() { server, identity, url = clitest.NewMemory() })

	mark := func(text string) { Expect(server.Set(keyname.GuardMarker, text)).To(Succeed()) }

	shown := func() (g guardJSON, code int) {
		GinkgoHelper()
		session := clitest.Run(url, "guard", "--json")
		Expect(json.Unmarshal(session.Out.Contents(), &g)).To(Succeed())
		return g, session.ExitCode()
	}

	It("says that there is none", func() {
		session := clitest.Run(url, "guard")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stdout(session)).To(ContainSubstring("none"))
		Expect(clitest.Stdout(session)).To(ContainSubstring("no program with a guard has locked here"))
		Expect(server.Keys()).To(BeEmpty())
	})

	It("shows that it is open, or closed and for how long, or of another term", func() {
		mark(identity.ID() + " 33000 3000")
		g, code := shown()
		Expect(code).To(BeZero())
		Expect(g).To(Equal(guardJSON{
			Server: server.Addr(), State: "open", ClosesFor: 33000, MaxTTL: 30000, Deposed: 3000,
			Term: identity.ID(), ServerTerm: identity.ID(), Matches: true, Role: "master",
		}))

		mark(identity.ID() + " 3600000 60000 99999999999999") // the clock was set back
		g, code = shown()
		Expect(code).To(Equal(1))
		Expect(g.State).To(BeEquivalentTo("closed"))
		Expect(g.OpensIn).To(Equal(int64(3600000)))
		Expect(clitest.Stdout(clitest.Run(url, "guard"))).To(MatchRegexp(`closed +1h00m +1h00m +59m00s +1m00s +` + identity.ID()[:8]))

		mark(another + " 33000 3000")
		g, code = shown()
		Expect(code).To(Equal(1))
		Expect(g.State).To(BeEquivalentTo("closing"))
		Expect(g.Matches).To(BeFalse())
		Expect(clitest.Stdout(clitest.Run(url, "guard"))).To(ContainSubstring("the next lock closes the guard for 33s"))

		identity.Follow(another)
		g, code = shown()
		Expect(code).To(Equal(1))
		Expect(g.State).To(BeEquivalentTo("replica"))
	})

	Describe("open", func() {
		It("opens a guard of another term, and keeps its length", func() {
			mark(another + " 33000 3000")
			session := clitest.Run(url, "guard", "open", "--yes", "--max-ttl", "5s")
			Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
			Expect(server.Get(keyname.GuardMarker)).To(Equal(identity.ID() + " 33000 3000"))
			Expect(clitest.Run(url, "acquire", "a", "--ttl", "5s", "--no-wait")).To(gexec.Exit(0))
		})

		DescribeTable("raises the lengths, and lowers none", func(flags, then string) {
			mark(identity.ID() + " 33000 3000")
			Expect(clitest.Run(url, append([]string{"guard", "open", "--yes"}, strings.Fields(flags)...)...)).To(gexec.Exit(0))
			Expect(server.Get(keyname.GuardMarker)).To(Equal(identity.ID() + then))
		},
			Entry("both", "--max-ttl 1m --deposed 4s", " 64000 4000"),
			Entry("maxTTL", "--max-ttl 1m", " 63000 3000"),
			Entry("deposed", "--deposed 5s", " 35000 5000"),
			Entry("only deposed is longer", "--max-ttl 5s --deposed 4s", " 34000 4000"),
			Entry("only maxTTL is longer", "--max-ttl 40s --deposed 1s", " 43000 3000"),
			Entry("neither", "--max-ttl 5s --deposed 1s", " 33000 3000"),
		)

		It("replaces what no script has written", func() {
			mark(identity.ID() + " 33000")
			g, _ := shown()
			Expect(g.State).To(BeEquivalentTo("closing"))
			Expect(clitest.Run(url, "guard", "open", "--yes")).To(gexec.Exit(64))
			Expect(clitest.Run(url, "guard", "open", "--yes", "--max-ttl", "5s")).To(gexec.Exit(0))
			Expect(server.Get(keyname.GuardMarker)).To(Equal(identity.ID() + " 5000 0"))
		})

		It("opens that of a new database, for which it needs to know the length", func() {
			session := clitest.Run(url, "guard", "open", "--yes")
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(ContainSubstring("no marker; say with --max-ttl"))
			Expect(server.Keys()).To(BeEmpty())
			Expect(clitest.Run(url, "guard", "open", "--yes", "--max-ttl", "30s", "--deposed", "3s")).To(gexec.Exit(0))
			Expect(server.Get(keyname.GuardMarker)).To(Equal(identity.ID() + " 33000 3000"))
		})

		It("refuses a replica, and stdin without a terminal", func() {
			mark(another + " 33000 3000")
			Expect(clitest.Run(url, "guard", "open")).To(gexec.Exit(64))
			identity.Follow(another)
			Expect(clitest.Run(url, "guard", "open", "--yes")).To(gexec.Exit(69))
			Expect(server.Get(keyname.GuardMarker)).To(Equal(another + " 33000 3000"))
		})

		DescribeTable("asks, and opens nothing if the server or the marker has changed meanwhile",
			func(answer string, change func(), words, then string) {
				mark(another + " 33000 3000")
				user := clitest.NewTypist(url)
				user.Types("$R guard open; echo code $?\n")
				user.Sees(`of the term 00000000, and the server is in the term`)
				user.Sees(`a second holder gets that lock at once`)
				user.Sees(`\[y/N\]`)
				change()
				user.Types(answer)
				user.Sees(words)
				Expect(server.Get(keyname.GuardMarker)).To(MatchRegexp(then))
			},
			Entry("yes", "y\n", func() {}, "the guard is open", `^[1-9a-f][0-9a-f]* 33000 3000$|^0[0-9a-f]*[1-9a-f][0-9a-f]* 33000 3000$`),
			Entry("no", "n\n", func() {}, "no guard was opened", `^0+ 33000 3000$`),
			Entry("a restart", "y\n", func() { identity.Begin() }, "changed meanwhile", `^0+ 33000 3000$`),
			Entry("another marker", "y\n", func() { mark(another + " 34000 3000") }, "changed meanwhile", `^0+ 34000 3000$`),
		)
	})

	It("shows and opens the guards of a quorum, all or some", func() {
		second, itsIdentity, its := clitest.NewMemory()
		both := url + "," + its
		session := clitest.Run(both, "guard", "open", second.Addr(), "--max-ttl", "30s", "--yes")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(server.Keys()).To(BeEmpty())
		Expect(second.Get(keyname.GuardMarker)).To(Equal(itsIdentity.ID() + " 30000 0"))
		session = clitest.Run(both, "guard")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stdout(session)).To(MatchRegexp(server.Addr() + ` +none`))
		Expect(clitest.Stdout(session)).To(MatchRegexp(second.Addr() + ` +open`))
		Expect(clitest.Run(both, "guard", "open", "elsewhere:1", "--yes")).To(gexec.Exit(64))
		Expect(clitest.Run(both, "guard", "open", "--max-ttl", "30s", "--yes")).To(gexec.Exit(0))
		Expect(clitest.Run(both, "guard")).To(gexec.Exit(0))
	})

	It("is noticed by a real server that restarts, and opened after that", func(ctx SpecContext) {
		server, client := clitest.NewServer("appendonly yes", "appendfsync always")
		url := "redis://" + server.Addr()
		Expect(clitest.Run(url, "guard", "open", "--max-ttl", "1h", "--yes")).To(gexec.Exit(0))
		Expect(clitest.Run(url, "acquire", "a", "--ttl", "1m")).To(gexec.Exit(0))
		Expect(server.Kill()).To(Succeed())
		Expect(server.Restart()).To(Succeed())
		Eventually(client.Ping).WithArguments(ctx).WithTimeout(20 * time.Second).Should(HaveField("Err()", BeNil()))
		Expect(clitest.Stdout(clitest.Run(url, "guard"))).To(ContainSubstring("closing"))
		Expect(clitest.Run(url, "acquire", "b", "--ttl", "1m", "--no-wait")).To(gexec.Exit(1))
		Expect(clitest.Run(url, "guard", "open", "--yes")).To(gexec.Exit(0))
		Expect(clitest.Run(url, "acquire", "b", "--ttl", "1m", "--no-wait")).To(gexec.Exit(0))
	})
})

var _ = Describe("commands that lock", func() {
	var (
		server   *miniredis.Miniredis
		identity *incarnation.Server
		url      string
	)

	// The guard closes for an hour with the next lock.
	BeforeEach(func() {
		server, identity, url = clitest.NewMemory()
		Expect(server.Set(keyname.GuardMarker, another+" 3660000 60000")).To(Succeed())
	})

	const token = "q83vEjRWeJCrze8SNFZ4kA"

	It("obey a marker that they find", func() {
		for _, args := range [][]string{{"acquire", "a", "--ttl", "1m"}, {"run", "-k", "a"}} {
			args = append(args, "--no-wait", "--", "true")
			if args[0] == "acquire" {
				args = args[:len(args)-2]
			}
			session := clitest.Run(url, args...)
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(MatchRegexp("^redislock: not acquired: the guard is closed for another \\S+, because"))
		}
		Expect(server.Get(keyname.GuardMarker)).To(MatchRegexp(`^` + identity.ID() + ` 3660000 60000 \d+$`))
		session := clitest.Run(url, "wait", "a", "--wait", "0")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring("not free: the guard is closed"))
		session = clitest.Run(url, "acquire", "a", "--ttl", "1m", "--wait", "1s", "--verbose")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(MatchRegexp("waiting: the guard is closed.*\n.*not acquired within 1s: the guard is closed"))
		Expect(server.Exists("a")).To(BeFalse())
	})

	It("refuse a ttl that the guard does not allow", func() {
		for _, args := range [][]string{
			{"--ttl", "61m"}, {"--ttl", "1m", "--max-ttl", "59s"},
		} {
			session := clitest.Run(url, append([]string{"acquire", "a"}, args...)...)
			Expect(session).To(gexec.Exit(64), strings.Join(args, " "))
			Expect(clitest.Stderr(session)).To(ContainSubstring("that the guard allows"))
		}
		for _, args := range [][]string{
			{"run", "-k", "a", "--at-least", "2h", "--", "true"}, {"renew", "a", "--token", token, "--ttl", "61m"},
		} {
			Expect(clitest.Run(url, args...)).To(gexec.Exit(64))
		}
		Expect(server.Keys()).To(Equal([]string{keyname.GuardMarker}))
		Expect(server.Get(keyname.GuardMarker)).To(Equal(another+" 3660000 60000"), "nobody has asked the guard")
	})

	It("raise what the marker says by flags, and take the rest from it", func() {
		for _, step := range []struct{ flags, then string }{
			{"--max-ttl 30m", `^` + identity.ID() + ` 3660000 60000 \d+$`},
			{"--max-ttl 2h", ` 7260000 60000 \d+$`},
			{"--deposed 2m", ` 7320000 120000 \d+$`},
			{"--deposed 1s", ` 7320000 120000 \d+$`},
		} {
			session := clitest.Run(url, append([]string{"acquire", "a", "--ttl", "1m", "--no-wait"}, strings.Fields(step.flags)...)...)
			Expect(session).To(gexec.Exit(1), step.flags)
			Expect(server.Get(keyname.GuardMarker)).To(MatchRegexp(step.then), step.flags)
		}
	})

	It("turn a guard on by flags or variables", func() {
		server.FlushAll()
		session := clitest.Run(url, "acquire", "a", "--ttl", "1m", "--no-wait", "--max-ttl", "2m", "--deposed", "3s")
		Expect(session).To(gexec.Exit(1))
		Expect(server.Get(keyname.GuardMarker)).To(MatchRegexp(` 123000 3000 \d+$`))
		server.FlushAll()
		cmd := clitest.Command([]string{"REDIS_URL=" + url, "REDISLOCK_MAX_TTL=2m", "REDISLOCK_DEPOSED=4"}, "acquire", "a", "--ttl", "1m", "--no-wait")
		Eventually(clitest.Start(cmd)).WithTimeout(20 * time.Second).Should(gexec.Exit(1))
		Expect(server.Get(keyname.GuardMarker)).To(MatchRegexp(` 124000 4000 \d+$`))
		server.FlushAll()
		Expect(clitest.Run(url, "acquire", "a", "--ttl", "1m", "--deposed", "3s")).To(gexec.Exit(64))
		Expect(clitest.Run(url, "acquire", "a", "--ttl", "1m", "--max-ttl", "-1s")).To(gexec.Exit(64))
	})

	It("release what the token holds, or what was forgotten, and serve nobody meanwhile", func() {
		Expect(server.Set("a", token+" x")).To(Succeed())
		Expect(clitest.Run(url, "release", "a", "gone", "--token", token)).To(gexec.Exit(0))
		Expect(server.Exists("a")).To(BeFalse())

		Expect(server.Set("b", "another")).To(Succeed())
		session := clitest.Run(url, "release", "a", "b", "--token", token)
		Expect(session).To(gexec.Exit(1))
		Expect(server.Exists("b")).To(BeTrue())
	})

	It("take a key by force until the guard opens, also one that is free", func() {
		Expect(server.Set("a", token+" x")).To(Succeed())
		server.SetTTL("a", time.Minute)
		session := clitest.Run(url, "release", "a", "b", "--force", "--yes")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^took a until the guard opens in \S+; it was held by x.*\n` +
			`took b until the guard opens in \S+; it was free`))
		for _, key := range []string{"a", "b"} {
			value, _ := server.Get(key)
			Expect(value).NotTo(HavePrefix(token))
			Expect(value).To(MatchRegexp(`^[\w-]{22} released by force while the guard is closed`))
			Expect(server.TTL(key)).To(BeNumerically("~", time.Hour+time.Minute, 5*time.Minute))
		}
	})

	It("renew nothing, because nobody knows who holds it", func() {
		Expect(server.Set("a", token+" x")).To(Succeed())
		session := clitest.Run(url, "renew", "a", "--token", token, "--ttl", "1m")
		Expect(session).To(gexec.Exit(69))
		Expect(clitest.Stderr(session)).To(ContainSubstring("not renewed: the guard is closed"))
	})
})
