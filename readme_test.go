package redislock_test

import (
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = Describe("The README", func() {
	It("shows code that an example runs", func() {
		examples := spec.Read("example_test.go")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(spec.Read("README.md"), -1)
		Expect(len(blocks)).To(BeNumerically(">", 5))
		for _, block := range blocks {
			code := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block[1], "\t$1")
			Expect(examples).To(ContainSubstring(code))
		}
	})

	It("leads to recipes whose code an example runs", func() {
		examples := spec.Read("example_recipes_test.go")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(spec.Read("docs/recipes.md"), -1)
		Expect(blocks).To(HaveLen(4))
		for _, block := range blocks {
			Expect(examples).To(ContainSubstring(block[1]))
		}
	})

	It("names the commands for a new machine as continuous integration runs them", func() {
		commands := regexp.MustCompile("`(go (?:run ./cmd/redislock demo|test [^`]*))`").FindAllStringSubmatch(spec.Read("README.md"), -1)
		Expect(commands).To(HaveLen(2))
		for _, command := range commands {
			Expect(spec.Read(".ci/run")).To(MatchRegexp(`(?m)^(step ".*"|\ttimeout \d+) ` + regexp.QuoteMeta(command[1]) + `$`))
		}
	})

	It("has a first example of 15 lines at most, and 200 lines in all", func() {
		text := spec.Read("README.md")
		first := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(text)[1]
		Expect(strings.Count(first, "\n")).To(BeNumerically("<=", 15))
		Expect(strings.Count(text, "\n")).To(BeNumerically("<", 200))
	})
})
