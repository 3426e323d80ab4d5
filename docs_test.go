package redislock_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = Describe("The README", func() {
	// program returns the first block, which is a whole program.
	program := func() string {
		GinkgoHelper()
		code := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(spec.Read("README.md"))[1]
		Expect(code).To(HavePrefix("package main\n"))
		return code
	}

	It("shows code that an example runs", func() {
		examples := spec.Read("example_test.go")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(spec.Read("README.md"), -1)
		Expect(len(blocks)).To(BeNumerically(">=", 5))
		for _, block := range blocks {
			if block[1] == program() {
				continue // the next spec runs it
			}
			code := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block[1], "\t$1")
			Expect(examples).To(ContainSubstring(code))
		}
	})

	It("begins with a program that runs as it is printed, at the address of a server", func() {
		spec.RequireServer()
		server, err := redistest.Start()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		Expect(strings.Count(program(), `"localhost:6379"`)).To(Equal(1))
		file := filepath.Join(GinkgoT().TempDir(), "main.go")
		here := strings.Replace(program(), "localhost:6379", server.Addr(), 1)
		Expect(os.WriteFile(file, []byte(here), 0o600)).To(Succeed())
		run := func() string {
			GinkgoHelper()
			printed, err := exec.Command("go", "run", file).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(printed))
			return string(printed)
		}
		Expect(run()).To(Equal("all three are ours for 10s\n"))
		Expect(run()).To(Equal("all three are ours for 10s\n"), "it has released them")

		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		DeferCleanup(client.Close)
		Expect(client.Set(context.Background(), "stock:42", "somebody", 0).Err()).To(Succeed())
		Expect(run()).To(Equal("one of them is taken, so none is ours\n"))
	})

	It("leads to recipes whose code an example runs", func() {
		examples := spec.Read("example_recipes_test.go")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(spec.Read("docs/recipes.md"), -1)
		Expect(blocks).To(HaveLen(8))
		for _, block := range blocks {
			Expect(examples).To(ContainSubstring(block[1]))
		}
	})

	It("names the commands for a new machine as continuous integration runs them", func() {
		commands := regexp.MustCompile("`(go (?:run ./cmd/redislock demo|test [^`]*))`").FindAllStringSubmatch(spec.Read("README.md"), -1)
		Expect(commands).To(HaveLen(2))
		for _, command := range commands {
			run := strings.Replace(regexp.QuoteMeta(command[1]), "go test ", "go test -race ", 1)
			Expect(spec.Read(".ci/run")).To(MatchRegexp(`(?m)^(step ".*"|\ttimeout \d+) ` + run + `( \./\S+)*$`))
		}
	})

	It("has a first program of 28 lines at most, and 200 lines in all", func() {
		Expect(strings.Count(program(), "\n")).To(BeNumerically("<=", 28))
		Expect(strings.Count(spec.Read("README.md"), "\n")).To(BeNumerically("<", 200))
	})
})

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code    = regexp.MustCompile("(?s)```.*?```")
)

// TestLinks checks that each link between the documents leads to a file, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	prose := map[string]string{} // the documents without their code
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/*.md", "bench/results/*.md", "cmd/redislock/*.md", "torture/results/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			prose[name] = code.ReplaceAllString(spec.Read(name), "")
		}
	}
	looked := 0
	for name, text := range prose {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			looked++
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, found[1])
			} else if anchor != "" && !anchors(prose[target])[anchor] {
				t.Errorf("%s links to %s, but there is no such heading", name, found[1])
			}
		}
	}
	if looked < 50 {
		t.Errorf("only %d links in %d documents", looked, len(prose))
	}
}

// anchors returns the anchors that hosts of git repositories give to the headings of a document: lower-case letters and digits,
// with a hyphen for each space. Other characters go.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, found[1])] = true
	}
	return all
}
