package redislockhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
	"github.com/redislock/redislock/redislockhttp"
)

// browser returns the path of a Chromium. Without one, it skips the spec, unless REDISLOCK_TEST_BROWSER is 1.
func browser() string {
	GinkgoHelper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("REDISLOCK_TEST_BROWSER") == "1" {
		Fail("there is no chromium in PATH")
	}
	Skip("no chromium in PATH")
	return ""
}

// browse opens a page in a real browser, lets so much time pass there, and returns what the page has become.
func browse(ctx context.Context, url string, passes time.Duration, flags ...string) string {
	GinkgoHelper()
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + GinkgoT().TempDir(), "--dump-dom",
		fmt.Sprintf("--virtual-time-budget=%d", passes.Milliseconds()),
	}, flags...)
	var said strings.Builder
	cmd := exec.CommandContext(limited, browser(), append(args, url)...)
	cmd.Stderr = &said
	page, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), said.String())
	return string(page)
}

// probed adds a script to a page, as its policy would not allow.
func probed(h http.Handler, script string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		_, _ = w.Write([]byte(strings.Replace(answer.Body.String(), "</body>", "<script>"+script+"</script></body>", 1)))
	})
}

func serve(h http.Handler) (url string) {
	server := httptest.NewServer(h)
	DeferCleanup(server.Close)
	return server.URL
}

var _ = spec.DescribeOn(spec.OnServer, "The page in a browser", func(on *spec.Redis) {
	var locks *redislock.Client
	BeforeEach(func(ctx SpecContext) {
		browser()
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
		spec.Obtain(ctx, locks, ttl, &redislock.Options{Metadata: metadata("api-1")}, "order 1", strings.Repeat("long-", 30))
	})

	It("renews itself, and keeps open what the user has opened", func(ctx SpecContext) {
		h := redislockhttp.Handler(on.Client)
		var asked atomic.Int64
		url := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 2 {
				_, err := locks.Obtain(ctx, "order 2", ttl, nil)
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				h = redislockhttp.Handler(on.Client) // the other one remembers for a second, which does not pass here
			}
			h.ServeHTTP(w, r)
		}))
		page := browse(ctx, url+"/", 3*time.Second)
		Expect(asked.Load()).To(BeNumerically(">=", 2))
		Expect(page).To(And(ContainSubstring("order 1"), ContainSubstring("order 2")))
		Expect(page).NotTo(ContainSubstring(`class="stale"`))

		opened := probed(redislockhttp.Handler(on.Client), "document.querySelector('details').open = true")
		Expect(browse(ctx, serve(opened)+"/", 5*time.Second)).To(MatchRegexp(`<details id="[^"]+" open=""`))
	})

	It("says when nobody answers any more", func(ctx SpecContext) {
		h := redislockhttp.Handler(on.Client)
		var asked atomic.Int64
		url := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) > 1 {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			h.ServeHTTP(w, r)
		}))
		Expect(browse(ctx, url+"/", 3*time.Second)).To(And(
			ContainSubstring(`class="stale"`), ContainSubstring("No answer; this is what was seen last."), ContainSubstring("order 1")))
	})

	It("filters while the user types", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, ttl, nil, "stock 42")
		typed := probed(redislockhttp.Handler(on.Client),
			"document.forms[0].q.value = 'stock'; document.forms[0].q.dispatchEvent(new Event('input', {bubbles: true}))")
		Expect(browse(ctx, serve(typed)+"/", time.Second)).To(And(ContainSubstring("stock 42"), Not(ContainSubstring("order 1"))))
	})

	It("fits on a phone, and has the colours that the user prefers", func(ctx SpecContext) {
		probe := probed(redislockhttp.Handler(on.Client), "document.title = [innerWidth, document.documentElement.scrollWidth, "+
			"getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('thead')).display].join(' ')")
		// A desktop's Chromium makes no window narrower than 500.
		Expect(browse(ctx, serve(probe)+"/", 500*time.Millisecond, "--window-size=500,900")).To(
			MatchRegexp(`<title>(\d+) \d+ rgb\(255, 255, 255\) none</title>`))
		for size, dark := range map[string]string{"--window-size=500,900": "none", "--window-size=1400,900": "table-header-group"} {
			page := browse(ctx, serve(probe)+"/", 500*time.Millisecond, size, "--blink-settings=preferredColorScheme=0")
			var width, scroll int
			_, title, _ := strings.Cut(page, "<title>")
			Expect(title).To(ContainSubstring("rgb(13, 17, 23) " + dark))
			_, err := fmt.Sscan(title, &width, &scroll)
			Expect(err).NotTo(HaveOccurred())
			Expect(scroll).To(BeNumerically("<=", width), "it scrolls sideways")
		}
	})

	It("runs nothing that a holder has written", func(ctx SpecContext) {
		const nasty = `<img src=x onerror="document.title='run'"><script>document.title='run'</script>`
		spec.Obtain(ctx, locks, ttl, &redislock.Options{Metadata: nasty}, nasty)
		page := browse(ctx, serve(redislockhttp.Handler(on.Client))+"/", 3*time.Second)
		Expect(page).To(ContainSubstring("&lt;img src=x"))
		Expect(page).NotTo(ContainSubstring("<title>run"))
	})
})
