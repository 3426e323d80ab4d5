package tree

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("tree of many", func() {
	on := clitest.OnServer()

	fill := func(fill func(*crowd)) {
		GinkgoHelper()
		c := newCrowd(on.Client)
		fill(c)
		Expect(c.end()).To(Succeed())
	}
	run := func(args ...string) (lines []string, complaint string) {
		GinkgoHelper()
		session := on.Run(append([]string{"tree"}, args...)...)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		return strings.Split(strings.TrimSuffix(clitest.Stdout(session), "\n"), "\n"), clitest.Stderr(session)
	}

	It("shows the first waiters of a line, and how many more there are", func() {
		fill(func(c *crowd) {
			c.lock("a")
			for i := range 10_000 {
				c.wait("a", i)
			}
		})
		lines, complaint := run()
		Expect(complaint).To(BeEmpty())
		Expect(lines).To(HaveLen(12))
		Expect(lines[0]).To(HaveSuffix("; 10000 wait"))
		Expect(lines[11]).To(Equal("└─ … and 9990 more"))
		lines, _ = run("--waiters", "2")
		Expect(lines).To(HaveLen(4))
		lines, _ = run("--waiters", "1500", "--lines", "0")
		Expect(lines).To(HaveLen(1502))
	})

	It("shows a circle deep in a line, and the waiter through which it leads", func() {
		fill(func(c *crowd) {
			c.lock("a")
			c.lock("b")
			for i := range 1000 {
				c.wait("a", i)
			}
			c.wait("a", 1000, "b")
			c.wait("b", 1001, "a")
			c.wait("a", 1002)
		})
		lines, complaint := run()
		Expect(complaint).To(BeEmpty())
		Expect(lines[0]).To(Equal("circle 1: 2 wait for each other, and none can go on"))
		Expect(lines[16]).To(Equal("├─ … 990 more"))
		Expect(lines[17]).To(ContainSubstring("waits for a for "))
		Expect(lines[18]).To(MatchRegexp(`└─ holds b .* \(circle 1\)`))
		Expect(lines[20]).To(Equal("└─ … and 1 more"))
	})

	It("shows the beginning of a long chain, and says that it goes on", func() {
		fill(func(c *crowd) { c.chain(1000, false) })
		lines, complaint := run()
		Expect(complaint).To(BeEmpty())
		Expect(lines).To(HaveLen(20))
		Expect(lines[19]).To(HaveSuffix("; holds chain:10 (1 waits; raise --depth)"))
		lines, complaint = run("--depth", "0")
		Expect(lines).To(HaveLen(1000))
		Expect(complaint).To(Equal("redislock: stopped after 1000 lines; name KEYs, or raise --lines\n"))
		lines, _ = run("--depth", "550", "--lines", "0")
		Expect(lines).To(HaveLen(2 * 550))
	})

	It("finds a long circle once", func() {
		fill(func(c *crowd) { c.chain(8, true) })
		lines, _ := run()
		Expect(lines[0]).To(Equal("circle 1: 8 wait for each other, and none can go on"))
		Expect(lines[9]).To(HavePrefix("  way out: release chain:0, chain:7, chain:6, chain:5 or 4 more ("))
		Expect(strings.Join(lines, "\n")).NotTo(ContainSubstring("circle 2"))
		Expect(lines[len(lines)-1]).To(MatchRegexp(`; holds chain:0 \(circle 1\)$`))
	})

	It("looks at no more waiters than --limit, and says so", func() {
		fill(func(c *crowd) {
			for i := range 1000 {
				c.lock(fmt.Sprint(i))
				c.wait(fmt.Sprint(i), 2*i)
				c.wait(fmt.Sprint(i), 2*i+1)
			}
		})
		lines, complaint := run("--limit", "300", "--lines", "0")
		Expect(len(lines)).To(BeNumerically("<", 2000))
		Expect(complaint).To(MatchRegexp(
			`^redislock: looked at \d{3,4} waiters only, so that trees and circles may be missing; raise --limit\n$`))
		lines, complaint = run("--limit", "0", "--lines", "0", "--waiters", "0", "--depth", "0")
		Expect(lines).To(HaveLen(3000))
		Expect(complaint).To(BeEmpty())
	})

	It("reads the first waiters of a line that is longer than --limit", func() {
		fill(func(c *crowd) {
			c.lock("a")
			for i := range 1000 {
				c.wait("a", i)
			}
		})
		lines, complaint := run("--limit", "500")
		Expect(lines[len(lines)-1]).To(Equal("└─ … and 990 more"))
		Expect(complaint).To(HavePrefix("redislock: looked at 100 waiters only"))
	})

	It("never runs KEYS, and asks for many keys at a time", func(ctx SpecContext) {
		fill(func(c *crowd) {
			for i := range 1000 {
				c.lock(fmt.Sprint(i))
				c.wait(fmt.Sprint(i), i)
			}
			for i := range 5000 {
				c.flush(1000)
				c.pipe.Set(context.Background(), fmt.Sprint("cache:", i), "something", longTTL)
			}
		})
		Expect(on.Client.ConfigResetStat(ctx).Err()).To(Succeed())
		run()
		stats := clitest.InfoOf(ctx, on.Client, "commandstats")
		Expect(stats).NotTo(HaveKey("cmdstat_keys"))
		calls := 0
		_, err := fmt.Sscanf(stats["cmdstat_evalsha"], "calls=%d,", &calls)
		Expect(err).NotTo(HaveOccurred())
		Expect(calls).To(BeNumerically("<", 15))
	})
})
