package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// The reference is the help of all commands, in one file that can be read without the program. To write it anew:
//
//	REDISLOCK_WRITE_REFERENCE=1 go test ./cmd/redislock -run TestProgram -ginkgo.focus reference

var _ = Describe("the reference", func() {
	file := filepath.Join("..", "..", "docs", "cli.md")
	var root *cobra.Command

	BeforeEach(func() {
		root = newRootCommand(&cli.Env{
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" },
		})
	})

	It("is what the help says", func() {
		want := reference(root)
		if os.Getenv("REDISLOCK_WRITE_REFERENCE") == "1" {
			Expect(os.WriteFile(file, []byte(want), 0o644)).To(Succeed())
		}
		got, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal(want), "write docs/cli.md anew: see reference_test.go")
	})

	It("has a description, an example and words for every flag of every command, in lines that fit", func() {
		for _, cmd := range shownCommands(root) {
			Expect(cmd.Short).NotTo(BeEmpty(), cmd.CommandPath())
			Expect(cmd.Long).NotTo(BeEmpty(), cmd.CommandPath())
			if cmd.Runnable() {
				Expect(cmd.Example).NotTo(BeEmpty(), cmd.CommandPath())
			}
			for line := range strings.Lines(cmd.Long) {
				Expect(len([]rune(strings.TrimRight(line, "\n")))).To(BeNumerically("<=", 90), line)
			}
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { Expect(f.Usage).NotTo(BeEmpty(), f.Name) })
		}
	})
})

// shownCommands returns the commands that the help lists, each before its own commands. Those of cobra are left out.
func shownCommands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, cmd := range root.Commands() {
		if !cmd.Hidden && cmd.Name() != "help" && cmd.Name() != "completion" {
			all = append(all, shownCommands(cmd)...)
		}
	}
	return all
}

// reference returns the help of all commands as Markdown.
func reference(root *cobra.Command) string {
	var out strings.Builder
	out.WriteString("# redislock at the command line\n\n" +
		"A spec writes this page from `redislock help`, and fails if the two differ. Install the tool in a\n" +
		"clone of the repository, with `go install ./cmd/redislock`. After the first release, this works anywhere:\n" +
		"`go install github.com/redislock/redislock/cmd/redislock@latest`.\n")
	for _, cmd := range shownCommands(root) {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n", cmd.CommandPath(), cmd.Short+".")
		fmt.Fprintf(&out, "\n```text\n%s\n```\n", strings.TrimSpace(cmd.Long))
		if cmd.Runnable() {
			fmt.Fprintf(&out, "\nUsage: `%s`\n", cmd.UseLine())
		}
		if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
			fmt.Fprintf(&out, "\n```text\n%s\n```\n", strings.TrimRight(flags.FlagUsages(), "\n"))
		}
		if cmd.Example != "" {
			fmt.Fprintf(&out, "\n```sh\n%s\n```\n", unindent(cmd.Example))
		}
	}
	return out.String()
}

func unindent(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, "  "), "\n  ", "\n")
}
