//go:build unix

package run

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("redislock run --log-format json", func() {
	var (
		ctx    context.Context
		client *redis.Client
		url    string
	)

	BeforeEach(func() {
		ctx = context.Background()
		server, c := clitest.NewServer()
		client, url = c, "redis://"+server.Addr()
	})

	begin := func(args ...string) *gexec.Session {
		GinkgoHelper()
		return clitest.Begin(url, append([]string{"run", "--log-format", "json"}, args...)...)
	}
	// lines returns what the log says, by msg, and in which order.
	lines := func(session *gexec.Session) (order []string, byMsg map[string]map[string]any) {
		GinkgoHelper()
		byMsg = map[string]map[string]any{}
		for line := range strings.Lines(clitest.Stderr(session)) {
			var event map[string]any
			Expect(json.Unmarshal([]byte(line), &event)).To(Succeed(), line)
			_, err := time.Parse(time.RFC3339Nano, event["time"].(string))
			Expect(err).NotTo(HaveOccurred())
			msg := event["msg"].(string)
			order, byMsg[msg] = append(order, msg), event
		}
		return order, byMsg
	}

	It("tells when the locks were acquired and released", func() {
		session := begin("-k", "a", "-k", "b", "--fence-key", "n", "--", "sleep", "0.1")
		Eventually(session).Should(gexec.Exit(0))
		order, events := lines(session)
		Expect(order).To(Equal([]string{"acquired", "released"}))
		Expect(events["acquired"]).To(And(HaveKeyWithValue("keys", []any{"a", "b"}), HaveKey("until"), HaveKey("fence")))
		Expect(events["released"]["held_ms"]).To(BeNumerically("~", 200, 150))
	})

	It("tells who was in the way, and how long it has waited", func() {
		holder := clitest.Hold(client, clitest.Bob, "a")
		began := time.Now()
		session := begin("-k", "a", "--", "true")
		Eventually(session.Err).Should(gbytes.Say(`"msg":"waiting"`))
		Expect(holder.Release(ctx)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
		order, events := lines(session)
		Expect(order).To(Equal([]string{"waiting", "waited", "acquired", "released"}))
		for _, msg := range []string{"waiting", "waited"} {
			Expect(events[msg]["blocker"]).To(And(HaveKeyWithValue("key", "a"), HaveKeyWithValue("token", "the-to"),
				HaveKeyWithValue("metadata", clitest.Bob)))
		}
		Expect(events["waited"]["wait_ms"]).To(And(BeNumerically(">=", 300), BeNumerically("<", time.Since(began).Milliseconds())))
		Expect(events["waited"]).To(HaveKeyWithValue("outcome", "acquired"))
	})

	It("tells of a refusal, and has errors as JSON", func() {
		clitest.Hold(client, clitest.Bob, "a")
		session := begin("-k", "a", "--wait", "400ms", "--", "true")
		Eventually(session).Should(gexec.Exit(1))
		order, events := lines(session)
		Expect(order).To(Equal([]string{"waiting", "waited", "error"}))
		Expect(events["waited"]).To(HaveKeyWithValue("outcome", "refused"))
		Expect(events["error"]["error"]).To(ContainSubstring(`not acquired within 400ms: "a" is held by bob@api-3`))
	})

	It("tells of a loss, and why", func() {
		session := begin("-k", "a", "--ttl", "600ms", "--", "sleep", "30")
		Eventually(client.Exists).WithArguments(ctx, "a").Should(HaveField("Val()", int64(1)))
		Expect(client.Set(ctx, "a", "another", 0).Err()).To(Succeed())
		Eventually(session).Should(gexec.Exit(76))
		order, events := lines(session)
		Expect(order).To(Equal([]string{"acquired", "lost", "error"}))
		Expect(events["lost"]).To(And(HaveKeyWithValue("cause", "taken"), HaveKeyWithValue("lost", []any{"a"}), HaveKey("held_ms")))
		Expect(events["error"]["error"]).To(ContainSubstring("the lock is lost, so the command is ended"))
	})
})
