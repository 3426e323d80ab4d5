//go:build unix

package ls

import (
	"context"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/redistest"
)

var _ = Describe("ls at a terminal", func() {
	var (
		ctx    context.Context
		client *redis.Client
		url    string
	)

	BeforeEach(func() {
		var server *redistest.Server
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
	})

	It("ls --watch fits the screen", func() {
		value := "q83vEjRWeJCrze8SNFZ4kA " + strings.Repeat("metadata ", 30)
		Expect(client.Set(ctx, "order:7", value, time.Minute).Err()).To(Succeed())
		user := clitest.NewTypist(url)
		user.Types("stty cols 60 rows 10; $R ls --watch=100ms\n")
		user.Sees("order:7.*metadata.*…")
		user.Types(clitest.CtrlC + "echo code $?\n")
		user.Sees("code 0\r\n")
		ansi := regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
		for line := range strings.Lines(string(user.Screen.Contents())) {
			Expect(term.Width(ansi.ReplaceAllString(strings.TrimRight(line, "\r\n"), ""))).To(BeNumerically("<=", 60), line)
		}
	})

	It("ls --watch restores the screen at its end, and leaves JSON on it", func() {
		user := clitest.NewTypist(url)
		for _, ending := range []string{"INT", "TERM", "HUP", "QUIT"} {
			user.Types("$R ls --watch=100ms & sleep 0.2; kill -" + ending + " $!; wait $!; echo ended\n")
			user.Sees(regexp.QuoteMeta(enterScreen))
			user.Sees(regexp.QuoteMeta(leaveScreen))
			user.Sees("ended\r\n")
		}
		Expect(client.Set(ctx, "a", "q83vEjRWeJCrze8SNFZ4kA", time.Minute).Err()).To(Succeed())
		before := len(user.Screen.Contents())
		user.Types("$R ls --watch=100ms --json\n")
		user.Sees(`"key":"a"`)
		user.Types(clitest.CtrlC + "echo code $?\n")
		user.Sees("code 0\r\n")
		Expect(string(user.Screen.Contents()[before:])).NotTo(ContainSubstring(enterScreen))
	})

	It("ls --watch restores the screen for Ctrl-Z, and takes it again for fg", func() {
		Expect(client.Set(ctx, "a", "q83vEjRWeJCrze8SNFZ4kA", time.Minute).Err()).To(Succeed())
		user := clitest.NewTypist(url)
		user.Types("$R ls --watch=1m\n")
		user.Sees("q83vEjRWeJCrze8SNFZ4kA")
		user.Types(clitest.CtrlZ)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("echo sto''pped\n")
		user.Sees("stopped\r\n")
		user.Types("fg\n")
		user.Sees(regexp.QuoteMeta(enterScreen))
		user.Sees("q83vEjRWeJCrze8SNFZ4kA") // at once, not after a minute
		user.Types(clitest.CtrlZ)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("kill %1; fg; echo code $?\n")
		user.Sees(regexp.QuoteMeta(leaveScreen) + `(.|\n)*code 0\r\n`)
		Expect(string(user.Screen.Contents())).NotTo(MatchRegexp(regexp.QuoteMeta(enterScreen) + `[^h]*code 0`))
	})
})
