//go:build unix

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/redispage"
)

// The library's own specs try what docs/redis.md says about it.
var _ = Describe("docs/redis.md", func() {
	DescribeTable("names the commands that a user needs for", func(feature string, args ...string) {
		page, err := redispage.Read(filepath.Join("..", "..", "docs", "redis.md"))
		Expect(err).NotTo(HaveOccurred())
		server, client := clitest.NewServer("appendonly yes", "appendfsync always")
		_, err = redislock.Obtain(GinkgoT().Context(), client, "held", time.Minute, nil)
		Expect(err).NotTo(HaveOccurred())
		commands := slices.DeleteFunc(page.Commands(feature), func(c string) bool { return c == "MSETEX" })
		Expect(server.Restrict("app", "pw", append(redispage.Rights(commands), "&"+keyname.InboxPrefix+"*")...)).To(Succeed())

		ran, denied, err := server.Observe(func() {
			session := clitest.Run("redis://app:pw@"+server.Addr(), args...)
			Expect(session).To(gexec.Exit(0), clitest.Stdout(session)+clitest.Stderr(session))
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(denied).To(BeEmpty())
		for _, command := range page[feature].Commands {
			first, _, _ := strings.Cut(command, " ")
			Expect(ran).To(ContainElement(first), "%s is named, and not used", command)
		}
	},
		Entry(nil, "`redislock run`, `acquire`", "run", "-k", "a", "-k", "b", "--ttl", "300ms", "--", "sleep", "0.5"),
		Entry(nil, "`redislock ls`", "ls"),
		Entry(nil, "`redislock inspect`", "inspect", "held"),
		Entry(nil, "`redislock tree`", "tree", "held"),
		Entry(nil, "`redislock doctor`", "doctor"),
	)
})
