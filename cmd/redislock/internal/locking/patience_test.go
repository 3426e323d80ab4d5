//go:build unix

package locking

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/answer"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/redistest"
)

func TestLocking(t *testing.T) { clitest.RunSpecs(t, "locking") }

var _ = Describe("A Redis that answers", func() {
	var server *redistest.Server
	var proxy *faultproxy.Proxy

	BeforeEach(func() {
		server, _ = clitest.NewServer()
		var err error
		proxy, err = faultproxy.New(server.Addr())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Close)
	})
	// refused makes the next scripts fail: all sendings of the first call of the library, and some of the next.
	refused := func(words string) *faultproxy.Fault {
		return proxy.Add(faultproxy.Rule{
			Match: faultproxy.Command("evalsha", "eval"), Times: 6, Action: faultproxy.RefuseReply(words),
		})
	}
	commands := map[string][]string{
		"acquire":     {"acquire", "a", "--ttl", "30"},
		"run":         {"run", "-k", "a", "--", "true"},
		"run --token": {"run", "-k", "a", "--token", "t", "--", "true"},
		"run --share": {"run", "-k", "a", "--token", "t", "--share", "--", "true"},
		"wait":        {"wait", "a"},
	}
	limited := func(args []string) []string { return append([]string{args[0], "--wait", "20s"}, args[1:]...) }
	for _, begin := range answer.Passing() {
		for name, args := range commands {
			It(begin+"is waited for by "+name+" with a limit", func() {
				fault := refused(begin + "for now")
				Expect(clitest.Run("redis://"+proxy.Addr(), limited(args)...)).To(gexec.Exit(0))
				Expect(fault.Count()).To(Equal(6))
			})
		}
	}
	It("later than the ttl has not given the locks", func() {
		proxy.Add(faultproxy.Rule{Match: faultproxy.Command("evalsha", "eval"), Action: faultproxy.DelayReply(400 * time.Millisecond)})
		for _, wait := range []string{"--no-wait", "--wait=10s"} {
			began := time.Now()
			session := clitest.Run("redis://"+proxy.Addr(), "acquire", "a", "--ttl", "300ms", wait)
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(MatchRegexp(
				`^redislock: not acquired: the Redis at [\d.:]+ takes longer to answer than a ttl of 300ms lasts; raise --ttl\n$`))
			Expect(time.Since(began)).To(BeNumerically("<", 8*time.Second))
		}
	})

	for name, args := range commands {
		It("that the user may not do it is not waited for by "+name, func() {
			proxy.Add(faultproxy.Rule{
				Match: faultproxy.Command("evalsha", "eval"), Action: faultproxy.RefuseReply("NOPERM not for you"),
			})
			began := time.Now()
			session := clitest.Run("redis://"+proxy.Addr(), limited(args)...)
			Expect(session).To(gexec.Exit(69))
			Expect(clitest.Stderr(session)).To(ContainSubstring("NOPERM not for you"))
			Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
		})
	}
})
