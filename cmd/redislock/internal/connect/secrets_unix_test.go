//go:build unix

package connect

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"golang.org/x/sys/unix"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("a secret in a pipe", func() {
	var path string

	BeforeEach(func() { path = filepath.Join(GinkgoT().TempDir(), "pipe") })

	It("is read once, by all servers of a quorum together", func(ctx SpecContext) {
		_, first := clitest.NewServer()
		_, second := clitest.NewServer()
		user := clitest.NewUser(ctx, first, second)
		reader, writer, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		_, err = writer.WriteString("secret-1\n")
		Expect(err).NotTo(HaveOccurred())
		Expect(writer.Close()).To(Succeed())

		// The first file of ExtraFiles is 3.
		cmd := clitest.Command([]string{"REDIS_URL=" + user.URL(first.Options().Addr) + " " + user.URL(second.Options().Addr)},
			"ls", "--all", "--watch=100ms", "-o", "name", "--password-file", "/dev/fd/3")
		cmd.ExtraFiles = []*os.File{reader}
		session := clitest.Start(cmd)
		Expect(reader.Close()).To(Succeed())
		clitest.Hold(first, "", "a")
		Eventually(session.Out.Contents).Should(ContainSubstring("a\n"))
		user.Disconnect(ctx)
		clitest.Hold(first, "", "b")
		Eventually(session.Out.Contents).Should(ContainSubstring("b\n"))
		Eventually(session.Interrupt()).Should(gexec.Exit(130))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	It("does not hold up a connection if the pipe takes the place of a file", func() {
		clitest.ReplaceFile(path, "first")
		var warnings []error
		s, err := newSecret("--password-file", passwordIn(path), func(err error) { warnings = append(warnings, err) })
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Remove(path)).To(Succeed())
		Expect(unix.Mkfifo(path, 0o600)).To(Succeed())
		began := time.Now()
		Expect(s.current()).To(Equal("first"))
		Expect(time.Since(began)).To(BeNumerically("<", readLimit))
		Expect(warnings).To(ConsistOf(MatchError(ContainSubstring("is no longer a regular file"))))
	})
})
