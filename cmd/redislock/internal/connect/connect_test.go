package connect

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

func TestConnect(t *testing.T) { clitest.RunSpecs(t, "connect") }

// refuses expects the program to end with 69 and one line that says these words, and no password.
func refuses(session *gexec.Session, words string) {
	GinkgoHelper()
	Expect(session).To(gexec.Exit(cli.Unavailable), clitest.Stderr(session))
	Expect(clitest.Stdout(session)).To(BeEmpty())
	Expect(clitest.Stderr(session)).To(And(HavePrefix("redislock: cannot use the Redis at "), ContainSubstring(words)))
	Expect(strings.Count(clitest.Stderr(session), "\n")).To(Equal(1), clitest.Stderr(session))
	Expect(clitest.Stderr(session)).NotTo(ContainSubstring("secret"))
}

var _ = Describe("connecting", func() {
	It("goes through a socket", func() {
		path := filepath.Join(GinkgoT().TempDir(), "s")
		clitest.NewServer("unixsocket "+path, "unixsocketperm 700")
		session := clitest.Run("unix://"+path, "ls")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		refuses(clitest.Run("unix://"+path+".not", "ls"), "no such socket")
	})

	It("takes --redis before REDIS_URL", func() {
		server, _ := clitest.NewServer()
		session := clitest.Run("redis://127.0.0.1:1", "ls", "--redis", "redis://"+server.Addr())
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
	})

	It("locks nothing anywhere else if --redis is empty", func() {
		server, _ := clitest.NewServer()
		session := clitest.Run("redis://"+server.Addr(), "run", "--redis", "", "-k", "a", "--", "echo", "ran")
		Expect(session).To(gexec.Exit(64))
		Expect(clitest.Stderr(session)).To(Equal("redislock: --redis is empty; is a variable unset?\n"))
		Expect(clitest.Stdout(session)).To(BeEmpty())
	})

	It("finds the master through Sentinels, of which one is enough", func(ctx SpecContext) {
		clitest.NeedServer()
		sentinel, err := redistest.StartSentinel()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sentinel.Close)
		hosts := "127.0.0.1:1," + strings.Join(sentinel.Addrs(), ",")
		session := clitest.Run("redis+sentinel://"+hosts+"/"+sentinel.MasterName(), "doctor")
		Expect(clitest.Stdout(session)).To(MatchRegexp(`ok +role +a master`))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`warn +replicas +1`))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`ok +locking`))
		refuses(clitest.Run("redis+sentinel://"+hosts+"/other", "ls"), "know no master of that name")
		refuses(clitest.Run("redis://"+sentinel.Addrs()[0], "ls"), "it is a Sentinel; write redis+sentinel://")
		refuses(clitest.Run("redis+sentinel://"+sentinel.Master().Addr()+"/m", "ls"), "is not a Sentinel")
		refuses(clitest.Run("redis+sentinel://127.0.0.1:1/m", "ls"), "no Sentinel can be asked: the connection is refused")
	})

	It("says what is wrong with user and password", func(ctx SpecContext) {
		server, _ := clitest.NewServer("requirepass secret1")
		refuses(clitest.Run("redis://"+server.Addr(), "ls"), "it requires a password")
		refuses(clitest.Run("redis://:secret2@"+server.Addr(), "ls"), "user or password is wrong")
		refuses(clitest.Run("redis://nobody:secret1@"+server.Addr(), "ls"), "user or password is wrong")
		Expect(clitest.Run("redis://:secret1@"+server.Addr(), "ls")).To(gexec.Exit(0))
	})

	It("says that a server is no Cluster, and has no such database", func() {
		server, _ := clitest.NewServer()
		refuses(clitest.Run("redis+cluster://"+server.Addr(), "ls"), "it is not a Cluster")
		refuses(clitest.Run("redis://"+server.Addr()+"/99", "ls"), "no database of that number")
	})

	It("says at once that nobody is there", func() {
		atOnce := func(url, saying string) {
			GinkgoHelper()
			began := time.Now()
			refuses(clitest.Run(url, "ls"), saying)
			Expect(time.Since(began)).To(BeNumerically("<", defaultPatience))
		}
		atOnce("redis://:secret@127.0.0.1:1", "127.0.0.1:1: the connection is refused")
		atOnce("redis+cluster://:secret@127.0.0.1:1", "the connection is refused")
		atOnce("redis://host.invalid", `no host "host.invalid"`)
	})

	It("does not wait longer than 3 s for a server that hangs", func() {
		server, _ := clitest.NewServer()
		Expect(server.Pause()).To(Succeed())
		began := time.Now()
		refuses(clitest.Run("redis://:secret@"+server.Addr(), "ls"), fmt.Sprintf("no answer within %v", defaultPatience))
		Expect(time.Since(began)).To(BeNumerically("<", defaultPatience+2*time.Second))
	})

	It("waits as long as --connect-timeout", func() {
		server, _ := clitest.NewServer()
		Expect(server.Pause()).To(Succeed())
		began := time.Now()
		refuses(clitest.Run("redis://"+server.Addr(), "ls", "--connect-timeout", "300ms"), "no answer within 300ms")
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))

		session := clitest.Begin("redis://"+server.Addr(), "ls", "--connect-timeout", "20s")
		Consistently(session, defaultPatience+500*time.Millisecond).ShouldNot(gexec.Exit())
		Expect(server.Resume()).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))

		session = clitest.Run("redis://"+server.Addr(), "ls", "--connect-timeout", "0")
		Expect(session).To(gexec.Exit(cli.Usage))
	})

	Describe("with the password in a file", func() {
		var file, addr string

		BeforeEach(func() {
			server, _ := clitest.NewServer("requirepass pass/word#1", "user ops on >more ~* &* +@all")
			file, addr = filepath.Join(GinkgoT().TempDir(), "password"), server.Addr()
			Expect(os.WriteFile(file, []byte("pass/word#1\n"), 0o600)).To(Succeed())
		})
		with := func(url string, variables []string, flags ...string) *gexec.Session {
			GinkgoHelper()
			session := clitest.Start(clitest.Command(append(variables, "REDIS_URL="+url), append([]string{"ls"}, flags...)...))
			Eventually(session, "10s").Should(gexec.Exit())
			return session
		}

		It("reads it as it is, without the end of its line", func() {
			Expect(with("redis://"+addr, nil, "--password-file", file)).To(gexec.Exit(0))
			Expect(with("redis://"+addr, []string{"REDISLOCK_PASSWORD_FILE=" + file})).To(gexec.Exit(0))
			Expect(os.WriteFile(file, []byte("more"), 0o600)).To(Succeed())
			Expect(with("redis://ops@"+addr, []string{"REDISLOCK_PASSWORD_FILE=" + file})).To(gexec.Exit(0))
			refuses(with("redis://"+addr, nil, "--password-file", file), "the password is in "+file)
			refuses(with("redis://"+addr, nil), "--password-file")
		})

		It("prefers the flag to the variable", func() {
			Expect(with("redis://"+addr, []string{"REDISLOCK_PASSWORD_FILE=/nowhere"}, "--password-file", file)).To(gexec.Exit(0))
		})

		DescribeTable("refuses what it cannot use",
			func(url, content, words string) {
				Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
				session := with(strings.ReplaceAll(url, "ADDR", addr), []string{"REDISLOCK_PASSWORD_FILE=" + file})
				Expect(session).To(gexec.Exit(cli.Usage))
				Expect(clitest.Stderr(session)).To(And(ContainSubstring(words), ContainSubstring("REDISLOCK_PASSWORD_FILE")))
				Expect(clitest.Stderr(session)).NotTo(ContainSubstring("secret"))
			},
			Entry("an empty file", "redis://ADDR", "\n", "there is no password in"),
			Entry("a password in the URL as well", "redis://:secret@ADDR", "secret", "leave one of them out"),
		)

		It("says that the file is not there", func() {
			session := with("redis://"+addr, nil, "--password-file", file+".not")
			Expect(session).To(gexec.Exit(cli.Usage))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: --password-file: open .*: no such file or directory\n$`))
		})
	})

	It("says that something else answers", func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
				conn.Close()
			}
		}()
		refuses(clitest.Run("redis://"+listener.Addr().String(), "ls"), "is the port right?")
	})
})
