//go:build unix

package acquire

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/words"
)

func TestAcquire(t *testing.T) { clitest.RunSpecs(t, "acquire") }

var _ = Describe("acquire", func() {
	var (
		ctx    context.Context
		server *redistest.Server
		client *redis.Client
		url    string
	)

	BeforeEach(func() {
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
	})

	line := HaveField("Val()", int64(1))

	It("acquires all keys for the ttl, and prints the token that releases them", func() {
		session := clitest.Run(url, "acquire", "a", "b", "--ttl", "90")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^[\w-]{22}\n$`))
		token := strings.TrimSpace(clitest.Stdout(session))
		for _, key := range []string{"a", "b"} {
			Expect(client.Get(ctx, key).Val()).To(HavePrefix(token + " {"))
			Expect(client.PTTL(ctx, key).Val()).To(BeNumerically("~", 90*time.Second, 2*time.Second))
		}
		Expect(clitest.Run(url, "release", "a", "b", "--token", token)).To(gexec.Exit(0))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	It("shares keys, which renew and release treat by the token", func() {
		var tokens []string
		for range 2 {
			session := clitest.Run(url, "acquire", "--shared", "a", "--permit", "b=2", "--ttl", "90")
			Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
			tokens = append(tokens, strings.TrimSpace(clitest.Stdout(session)))
		}
		session := clitest.Run(url, "acquire", "--permit", "b=2", "--ttl", "90", "--no-wait")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(MatchRegexp(`not acquired: "b" is held by .* and 1 more, \d+`))
		for _, token := range tokens {
			Expect(clitest.Run(url, "renew", "a", "b", "--token", token, "--ttl", "2m")).To(gexec.Exit(0))
			Expect(clitest.Run(url, "release", "a", "b", "--token", token)).To(gexec.Exit(0))
		}
		Expect(client.DBSize(ctx).Val()).To(BeZero())
		Expect(clitest.Run(url, "acquire", "--ttl", "90")).To(gexec.Exit(64))
	})

	It("prints what is known of them as JSON", func() {
		session := clitest.Run(url, "acquire", "a", "b", "--ttl", "1m", "--fence-key", "n", "--json")
		var told struct {
			Keys  []string
			Token string
			Until time.Time
			Fence int64
		}
		Expect(json.Unmarshal(session.Out.Contents(), &told)).To(Succeed())
		Expect(told.Keys).To(Equal([]string{"a", "b"}))
		Expect(client.Get(ctx, "a").Val()).To(HavePrefix(told.Token + " "))
		Expect(told.Until).To(BeTemporally("~", time.Now().Add(time.Minute), 2*time.Second))
		fence, err := client.Get(ctx, "n").Int64()
		Expect(err).NotTo(HaveOccurred())
		Expect(told.Fence).To(Equal(fence))
	})

	It("leaves who runs it, and not itself, which is gone", func() {
		Expect(clitest.Run(url, "acquire", "a", "--ttl", "1m")).To(gexec.Exit(0))
		_, metadata, _ := strings.Cut(client.Get(ctx, "a").Val(), " ")
		var fields struct {
			PID   int
			User  string
			Since time.Time
		}
		Expect(json.Unmarshal([]byte(metadata), &fields)).To(Succeed())
		Expect(fields.PID).To(Equal(os.Getpid()))
		Expect(fields.User).To(Equal("alice"))
		Expect(fields.Since).To(BeTemporally("~", time.Now(), 2*time.Second))
		shown, _ := words.Fields(metadata)
		Expect(words.Value(shown, "command")).To(BeEmpty())
	})

	It("waits in line, says who is in the way, and ends with the code for a conflict", func() {
		holder := clitest.Hold(client, clitest.Bob, "a")
		session := clitest.Run(url, "acquire", "a", "--ttl", "1m", "--wait", "300ms", "-E", "75")
		Expect(session).To(gexec.Exit(75))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not acquired within 300ms: "a" is held by bob@api-3`))
		Expect(clitest.Stdout(session)).To(BeEmpty())

		session = clitest.Begin(url, "acquire", "a", "--ttl", "1m", "--verbose")
		Eventually(session.Err).Should(gbytes.Say("waiting for a: held by bob@api-3"))
		Expect(holder.Release(ctx)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^[\w-]{22}\n$`))
	})

	It("stays in line with a password that was replaced", func() {
		user := clitest.NewUser(ctx, client)
		holder := clitest.Hold(client, clitest.Bob, "a")
		session := clitest.Begin(user.URL(server.Addr()), "acquire", "a", "--ttl", "1m", "--password-file", user.File)
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(line)
		user.Replace(ctx, "secret-2")
		Expect(holder.Release(ctx)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	It("leaves the line when a signal ends it", func() {
		clitest.Hold(client, clitest.Bob, "a")
		session := clitest.Begin(url, "acquire", "a", "--ttl", "1m")
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(line)
		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gexec.Exit(143))
		Expect(clitest.Stderr(session)).To(BeEmpty())
		Expect(client.Exists(ctx, "a{a}:redislock:line").Val()).To(BeZero())
	})

	It("gives the lock back if it cannot print the token", func() {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			Skip(err.Error())
		}
		defer full.Close()
		cmd := clitest.Command([]string{"REDIS_URL=" + url}, "acquire", "a", "--ttl", "1m")
		cmd.Stdout = full
		Expect(cmd.Run()).NotTo(Succeed())
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	It("goes on giving the lock back while Redis cannot release it", func() {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			Skip(err.Error())
		}
		defer full.Close()
		Expect(clitest.Run(url, "run", "-k", "warm", "--", "true")).To(gexec.Exit(0)) // now the server has the scripts
		proxy, fault := clitest.RefusingReleases(server, 10)
		cmd := clitest.Command([]string{"REDIS_URL=redis://" + proxy.Addr()}, "acquire", "a", "--ttl", "10m")
		cmd.Stdout = full
		Expect(cmd.Run()).NotTo(Succeed())
		Expect(fault.Count()).To(Equal(10))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	It("fails at once for a key that the run around it holds", func() {
		session := clitest.Run(url, "run", "-k", "a", "--", clitest.Program(), "acquire", "a", "--ttl", "1m")
		Expect(session).To(gexec.Exit(64))
		Expect(clitest.Stderr(session)).To(ContainSubstring("which would wait for itself"))
	})

	It("serves a script: acquire, renew, release", func() {
		cmd := clitest.Command([]string{"REDIS_URL=" + url, "R=" + clitest.Program()})
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `set -e
			token=$("$R" acquire a --ttl 5s)
			trap '"$R" release a --token "$token"' EXIT
			"$R" renew a --token "$token" --ttl 10m
			"$R" ttl a`}
		session := clitest.Start(cmd)
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^(9m5\ds|10m00s)\n$`))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	DescribeTable("refuses what it cannot do, before it locks anything",
		func(words string, args ...string) {
			session := clitest.Run(url, append([]string{"acquire"}, args...)...)
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*\n$`))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		},
		Entry("no key", "acquire needs a KEY", "--ttl", "1m"),
		Entry("no ttl", "acquire needs --ttl D", "a"),
		Entry("a short ttl", "--ttl 50ms is under 100ms", "a", "--ttl", "50ms"),
		Entry("a very long ttl", "add --long", "a", "--ttl", "2d"),
	)

	It("ends with 69 without Redis", func() {
		Expect(server.Kill()).To(Succeed())
		session := clitest.Run(url, "acquire", "a", "--ttl", "1m")
		Expect(session).To(gexec.Exit(69))
		Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*refused.*\n$`))
	})
})
