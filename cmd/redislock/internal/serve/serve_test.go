package serve_test

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

func TestServe(t *testing.T) { clitest.RunSpecs(t, "serve") }

// begin starts serve, and returns its session and the address that it says.
func begin(url string, args ...string) (session *gexec.Session, at string) {
	GinkgoHelper()
	session = clitest.Begin(url, append([]string{"serve"}, args...)...)
	DeferCleanup(func() { session.Kill() })
	Eventually(session.Err).WithTimeout(10 * time.Second).Should(gbytes.Say(`serving http://\S+/\n`))
	return session, regexp.MustCompile(`http://\S+`).FindString(clitest.Stderr(session))
}

// get asks for a page with that Host.
func get(ctx SpecContext, url, host string) (code int, page string) {
	GinkgoHelper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	if host != "" {
		r.Host = host
	}
	answer, err := http.DefaultClient.Do(r)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	Expect(err).NotTo(HaveOccurred())
	return answer.StatusCode, string(text)
}

var _ = Describe("serve", func() {
	on := clitest.OnServer()

	It("shows the locks, on this machine only, until a signal ends it", func(ctx SpecContext) {
		Expect(on.Client.Set(ctx, "order:7", `q83vEjRWeJCrze8SNFZ4kA {"user":"bob","host":"api-3"}`, time.Minute).Err()).To(Succeed())
		session, url := begin(on.URL, "--listen", "127.0.0.1:0")
		Expect(url).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/$`))
		Expect(clitest.Stderr(session)).NotTo(ContainSubstring("password"))
		code, page := get(ctx, url, "")
		Expect(code).To(Equal(http.StatusOK))
		Expect(page).To(And(ContainSubstring("order:7"), ContainSubstring("bob@api-3")))
		code, _ = get(ctx, url+"other", "")
		Expect(code).To(Equal(http.StatusNotFound))
		session.Terminate()
		Eventually(session).Should(gexec.Exit(143))
	})

	It("answers only to names that no web page can choose", func(ctx SpecContext) {
		_, url := begin(on.URL, "--listen", "127.0.0.1:0", "--host", "locks.example.com")
		for host, want := range map[string]int{
			"localhost": 200, "LOCALHOST:80": 200, "[::1]:7700": 200, "10.1.2.3": 200, "locks.example.com:443": 200,
			"evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		} {
			code, page := get(ctx, url, host)
			Expect(code).To(Equal(want), host)
			if want == 421 {
				Expect(page).To(ContainSubstring("--host"))
			}
		}
	})

	It("warns if others can reach it", func(ctx SpecContext) {
		session, url := begin(on.URL, "--listen", ":0")
		Expect(url).To(HavePrefix("http://localhost:"))
		Eventually(session.Err).Should(gbytes.Say("anyone who reaches this address can read keys and metadata; there is no password"))
		code, _ := get(ctx, url, "")
		Expect(code).To(Equal(http.StatusOK))
	})

	It("says what is wrong with Redis on the page", func(ctx SpecContext) {
		server, _ := clitest.NewServer()
		_, url := begin("redis://"+server.Addr(), "--listen", "127.0.0.1:0")
		Expect(server.Kill()).To(Succeed())
		Eventually(func() string { _, page := get(ctx, url, ""); return page }).WithTimeout(20 * time.Second).
			Should(ContainSubstring("cannot use the Redis at " + server.Addr()))
	})

	It("shows a quorum", func(ctx SpecContext) {
		_, clients, urls, _ := clitest.NewQuorum()
		for _, client := range clients[:2] {
			Expect(client.Set(ctx, "order:7", `q83vEjRWeJCrze8SNFZ4kA {"host":"api-3"}`, time.Minute).Err()).To(Succeed())
		}
		_, url := begin(urls, "--listen", "127.0.0.1:0")
		_, page := get(ctx, url, "")
		Expect(page).To(And(ContainSubstring("order:7"), ContainSubstring("api-3"), Not(ContainSubstring("q83vEjRWeJCrze8SNFZ4kA"))))
	})

	It("refuses what it cannot use", func() {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(taken.Close)
		for _, c := range []struct{ listen, says string }{
			{"7700", `--listen "7700" is no HOST:PORT`},
			{"127.0.0.1:nonsense", "--listen: listen tcp"},
			{taken.Addr().String(), "address already in use"},
		} {
			session := clitest.Run(on.URL, "serve", "--listen", c.listen)
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(ContainSubstring(c.says))
			Expect(strings.Count(clitest.Stderr(session), "\n")).To(Equal(1))
		}
		Expect(clitest.Run("redis://127.0.0.1:1", "serve", "--listen", "127.0.0.1:0")).To(gexec.Exit(69))
	})
})
