package redislock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The README", func() {
	readme := func(path string) string {
		GinkgoHelper()
		text, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		return string(text)
	}

	It("shows code that an example runs", func() {
		examples := readme("example_test.go")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme("README.md"), -1)
		Expect(len(blocks)).To(BeNumerically(">", 5))
		for _, block := range blocks {
			code := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block[1], "\t$1")
			Expect(examples).To(ContainSubstring(code))
		}
	})

	It("leads to recipes whose code an example runs", func() {
		examples := readme("example_recipes_test.go")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme(filepath.Join("docs", "recipes.md")), -1)
		Expect(blocks).To(HaveLen(4))
		for _, block := range blocks {
			Expect(examples).To(ContainSubstring(block[1]))
		}
	})

	It("names the commands for a new machine as continuous integration runs them", func() {
		commands := regexp.MustCompile("`(go (?:run ./cmd/redislock demo|test [^`]*))`").FindAllStringSubmatch(readme("README.md"), -1)
		Expect(commands).To(HaveLen(2))
		for _, command := range commands {
			Expect(readme(filepath.Join(".ci", "run"))).To(MatchRegexp(`(?m)^(step ".*"|\ttimeout \d+) ` + regexp.QuoteMeta(command[1]) + `$`))
		}
	})

	It("has a first example of 15 lines at most, and 200 lines in all", func() {
		text := readme("README.md")
		first := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(text)[1]
		Expect(strings.Count(first, "\n")).To(BeNumerically("<=", 15))
		Expect(strings.Count(text, "\n")).To(BeNumerically("<", 200))
	})

	It("points only to files that are there", func() {
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readme("README.md"), -1) {
			_, err := os.Stat(link[1])
			Expect(err).NotTo(HaveOccurred())
		}
	})
})
