package scan_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

func TestScan(t *testing.T) { clitest.RunSpecs(t, "scan") }

var _ = Describe("completion", func() {
	on := clitest.OnServer()

	BeforeEach(func() {
		for key, value := range map[string]string{
			"order:7":      `q83vEjRWeJCrze8SNFZ4kA {"host":"api-3","user":"bob"}`,
			"order:8":      "q83vEjRWeJCrze8SNFZ4kB",
			"stock:42":     "q83vEjRWeJCrze8SNFZ4kC",
			"order[7]":     "q83vEjRWeJCrze8SNFZ4kD",
			"order;reboot": "q83vEjRWeJCrze8SNFZ4kE",
			"order:cached": "<html>",
		} {
			Expect(on.Client.Set(context.Background(), key, value, time.Minute).Err()).To(Succeed())
		}
	})

	// offered returns what a shell is offered for the last of these words.
	offered := func(words ...string) []string {
		GinkgoHelper()
		session := on.Run(append([]string{"__complete"}, words...)...)
		Expect(session).To(gexec.Exit(0))
		lines := strings.Split(strings.TrimSpace(clitest.Stdout(session)), "\n")
		Expect(lines[len(lines)-1]).To(Equal(":4"), "no names of files")
		return lines[:len(lines)-1]
	}

	DescribeTable("offers the keys that are held, with their holders",
		func(words ...string) {
			Expect(offered(append(words, "ord")...)).To(Equal([]string{"order:7\tbob@api-3", "order:8"}))
		},
		Entry(nil, "inspect"), Entry(nil, "ttl"), Entry(nil, "wait"), Entry(nil, "release"), Entry(nil, "ls"), Entry(nil, "tree"),
		Entry(nil, "run", "-k"), Entry(nil, "inspect", "stock:42"),
	)

	It("takes the beginning literally, and offers no key twice", func() {
		Expect(offered("inspect", "order[")).To(BeEmpty())
		Expect(offered("inspect", "order*")).To(BeEmpty())
		Expect(offered("inspect", "order:7", "order:")).To(Equal([]string{"order:8"}))
	})

	It("offers nothing without a Redis, soon and without a word", func() {
		began := time.Now()
		session := clitest.Run("redis://127.0.0.1:1", "__complete", "inspect", "ord")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal(":4\n"))
		Expect(time.Since(began)).To(BeNumerically("<", 3*time.Second))
	})
})
