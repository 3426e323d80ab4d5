package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

func TestProgram(t *testing.T) { clitest.RunSpecs(t, "the command redislock") }

var _ = Describe("redislock", func() {
	const list = "\n  demo "

	DescribeTable("understands its arguments, or says in one line what is wrong",
		func(args string, code int, stdout, stderr string) {
			session := clitest.Run("", strings.Fields(args)...)
			Expect(session).To(gexec.Exit(code))
			holds(clitest.Stdout(session), stdout)
			holds(clitest.Stderr(session), stderr)
			Expect(clitest.Stderr(session)).NotTo(ContainSubstring("secret"))
			if args != "" && stderr != "" {
				Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*\n$`))
			}
		},
		Entry("nothing", "", 64, "", list),
		Entry(nil, "help", 0, list, ""),
		Entry(nil, "-h", 0, list, ""),
		Entry(nil, "--help", 0, list, ""),
		Entry(nil, "--version", 0, "redislock version ", ""),
		Entry(nil, "help demo", 0, "--redis URL", ""),
		Entry(nil, "demo -h", 0, "--redis URL", ""),
		Entry(nil, "demo --help", 0, "Examples:\n  redislock demo\n", ""),
		Entry(nil, "help exit-codes", 0, "  69   Redis cannot be reached", ""),
		Entry(nil, "completion bash", 0, "__start_redislock", ""),
		Entry(nil, "completion fish", 0, "complete -c redislock", ""),
		Entry(nil, "dmeo", 64, "", `no subcommand "dmeo"; did you mean "redislock demo"?`),
		Entry(nil, "rnu -k a -- true", 64, "", `no subcommand "rnu"; did you mean "redislock run"?`),
		Entry(nil, "inspec --json a", 64, "", `did you mean "redislock inspect"?`),
		Entry(nil, "frobnicate --frob", 64, "", `no subcommand "frobnicate"; run "redislock help"`),
		Entry(nil, "help frobnicate", 64, "", `no subcommand "frobnicate"; run "redislock help"`),
		Entry(nil, "frobnicate", 64, "", `no subcommand "frobnicate"; run "redislock help"`),
		Entry(nil, "--frob", 64, "", `unknown flag: --frob; run "redislock --help"`),
		Entry(nil, "demo --frob", 64, "", `unknown flag: --frob; run "redislock demo --help"`),
		Entry(nil, "demo --redis", 64, "", `needs an argument: --redis; run "redislock demo --help"`),
		Entry(nil, "demo redis://:secret@host", 64, "", `flags only; run "redislock demo --help"`),
		Entry(nil, "demo --redis redis://:se%cret@host", 64, "", "--redis cannot be read: a special character in user or password"),
		Entry(nil, "demo --redis redis://user:1/secret@host", 64, "", "write it like redis://"),
		Entry(nil, "demo --redis host:6379", 64, "", "--redis cannot be read: it does not begin with a scheme like redis://; write it like redis://"),
	)
	DescribeTable("ends with 69 and says why when Redis refuses the connection",
		func(args string) {
			session := clitest.Run("redis://127.0.0.1:1", strings.Fields(args)...)
			Expect(session).To(gexec.Exit(cli.Unavailable))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*127\.0\.0\.1:1: the connection is refused.*\n$`))
			Expect(clitest.Stdout(session)).To(BeEmpty())
		},
		Entry(nil, "ls"), Entry(nil, "inspect a"), Entry(nil, "ttl a"), Entry(nil, "wait a"), Entry(nil, "doctor"),
		Entry(nil, "acquire a --ttl 1m"), Entry(nil, "renew a --token t --ttl 1m"), Entry(nil, "run --no-wait -k a -- true"),
	)

	// A program that can run text/template keeps every exported method of every type, because a template may call it by name.
	// With go-redis that is 8 MB of 20. Cobra links it in only when a template of its own is set.
	It("links no text/template", func() {
		program, err := os.ReadFile(clitest.Program())
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Contains(program, []byte("spf13/cobra.(*Command).Execute"))).To(BeTrue(), "names of functions can be read")
		Expect(bytes.Contains(program, []byte("text/template.(*Template).Execute"))).To(BeFalse())
	})
})

// holds expects part in text, and an empty text for an empty part.
func holds(text, part string) {
	GinkgoHelper()
	if part == "" {
		Expect(text).To(BeEmpty())
	} else {
		Expect(text).To(ContainSubstring(part))
	}
}
