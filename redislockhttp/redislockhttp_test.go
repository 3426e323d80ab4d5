package redislockhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/spec"
	"github.com/redislock/redislock/redislockhttp"
)

const ttl = time.Minute

// get asks a handler for its page, as what is no browser.
func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var tags = regexp.MustCompile(`<[^>]*>|\s+`)

// text returns what a page shows, without the head, tags and line ends.
func text(h http.Handler, path string) string {
	GinkgoHelper()
	w := get(h, path)
	Expect(w.Code).To(Equal(http.StatusOK))
	_, body, _ := strings.Cut(w.Body.String(), "<main")
	body, _, _ = strings.Cut("<main"+body, "<script")
	return strings.TrimSpace(strings.Join(strings.Fields(tags.ReplaceAllString(body, " ")), " "))
}

func metadata(host string) string { return fmt.Sprintf(`{"user":"bob","host":%q,"pid":7}`, host) }

// stand puts a waiter into a line that never gives up. Its caller holds a lock.
func stand(ctx context.Context, client redis.Cmdable, name, wants string, holds *redislock.Lock) {
	GinkgoHelper()
	now := time.Now()
	names := script.WriteNames([]string{wants}, []script.Holding{{Token: holds.Token(), Keys: holds.Keys()}})
	entry := fmt.Sprintf("%s.1/1 1 60000 0+%d %stoken-of-%s %s", name, len(names), names, name, metadata(name))
	mark := -float64(now.Add(500*time.Second).UnixMilli()*4096 + 2*600)
	Expect(client.ZAdd(ctx, keyname.LineOf(wants),
		redis.Z{Score: float64(now.UnixMicro()), Member: entry}, redis.Z{Score: mark, Member: "~" + name + ".1"},
	).Err()).To(Succeed())
}

var _ = spec.DescribeOn(spec.OnServer, "The page", func(on *spec.Redis) {
	handler := func() http.Handler { return redislockhttp.Handler(on.Client) }
	var locks *redislock.Client
	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})
	obtain := func(ctx context.Context, host string, keys ...string) *redislock.Lock {
		GinkgoHelper()
		return spec.Obtain(ctx, locks, ttl, &redislock.Options{Metadata: metadata(host)}, keys...)
	}

	It("shows locks, who waits for whom, and who shares a key", func(ctx SpecContext) {
		Expect(text(handler(), "/")).To(HaveSuffix("Locks Nobody holds a lock."))
		outer, inner := obtain(ctx, "api-1", "order 7", "stock 42"), obtain(ctx, "api-2", "user 9")
		stand(ctx, on.Client, "api-3", "order 7", inner)
		stand(ctx, on.Client, "api-4", "user 9", outer)
		Expect(on.Client.ZRem(ctx, keyname.LineOf("user 9"), "~api-4.1").Err()).To(Succeed()) // it has gone
		for _, host := range []string{"api-5", "api-6"} {
			spec.Obtain(ctx, locks, ttl, &redislock.Options{Metadata: metadata(host), Shared: []string{"catalog"}}, "catalog")
		}
		Expect(on.Client.Set(ctx, "cached", "<html>", ttl).Err()).To(Succeed())

		shown := text(handler(), "/")
		Expect(shown).To(ContainSubstring("4 locks 1 waiting"))
		Expect(shown).To(MatchRegexp(`bob@api-1 pid 7 holds order 7 \S+ left ` +
			`bob@api-3 pid 7 waits for order 7 for \S+ holds user 9`))
		Expect(shown).To(MatchRegexp(`catalog bob@api-[56] pid 7 2 holders bob@api-[56] pid 7 \S+ left bob@api-[56] pid 7 \S+ left`))
		Expect(shown).To(MatchRegexp(`order 7 bob@api-1 pid 7 metadata user bob host api-1 pid 7 \S+ 1 `))
		Expect(shown).NotTo(ContainSubstring("cached"))
		Expect(shown).NotTo(ContainSubstring("Circle"))
	})

	It("shows a circle, and the way out", func(ctx SpecContext) {
		one, two := obtain(ctx, "api-1", "a"), obtain(ctx, "api-2", "b")
		stand(ctx, on.Client, "api-1", "b", one)
		stand(ctx, on.Client, "api-2", "a", two)
		shown := text(handler(), "/")
		Expect(shown).To(ContainSubstring("Circle 1: 2 wait for each other " +
			"bob@api-2 pid 7 waits for a , held by bob@api-1 pid 7 bob@api-1 pid 7 waits for b , held by bob@api-2 pid 7 " +
			"Release one of a , b to end it."))
		Expect(shown).To(ContainSubstring("circle 1"))
	})

	It("shows no whole token, and nothing of keys and metadata as HTML", func(ctx SpecContext) {
		const nasty = `<script>alert("x")</script>` + "\x1b\u202e"
		lock := spec.Obtain(ctx, locks, ttl, &redislock.Options{Metadata: nasty}, nasty)
		named := spec.Obtain(ctx, locks, ttl, &redislock.Options{Token: "secret"}, "named")
		stand(ctx, on.Client, "api-1", nasty, named)
		page := get(handler(), "/?q="+"%3Cb%3E").Body.String() + get(handler(), "/").Body.String()
		Expect(page).NotTo(ContainSubstring(lock.Token()))
		Expect(page).NotTo(ContainSubstring("secret"))
		Expect(page).NotTo(ContainSubstring("<script>alert"))
		Expect(page).NotTo(ContainSubstring("<b>\""))
		Expect(page).To(ContainSubstring(`&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;\x1b\u202e`))
		Expect(strings.ContainsAny(page, "\x1b\u202e")).To(BeFalse())
	})

	It("changes nothing", func(ctx SpecContext) {
		lock := obtain(ctx, "api-1", "a", "b")
		spec.Obtain(ctx, locks, ttl, &redislock.Options{Shared: []string{"c"}}, "c")
		stand(ctx, on.Client, "api-2", "a", lock)
		all := func() (found []string) {
			for _, key := range slices.Sorted(slices.Values(on.Keys(ctx))) {
				dump, err := on.Client.Dump(ctx, key).Result()
				Expect(err).NotTo(HaveOccurred())
				found = append(found, key, dump, on.Client.PExpireTime(ctx, key).Val().String())
			}
			return found
		}
		before := all()
		Expect(text(handler(), "/")).To(ContainSubstring("3 locks"))
		Expect(all()).To(Equal(before))
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodOptions} {
			w := httptest.NewRecorder()
			handler().ServeHTTP(w, httptest.NewRequest(method, "/", nil))
			Expect(w.Code).To(Equal(http.StatusMethodNotAllowed))
			Expect(w.Header().Get("Allow")).To(Equal("GET, HEAD"))
		}
	})

	It("is not for other origins", func(ctx SpecContext) {
		own := "http://example.com" // of httptest
		for _, c := range []struct {
			code   int
			header []string
		}{
			{200, nil},
			{200, []string{"Origin", own}},
			{200, []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}},
			{200, []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}},
			{200, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}}, // a link
			{403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
			{403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}},
			{403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}},
			{403, []string{"Origin", "http://evil.example"}},
			{403, []string{"Origin", "null"}},
		} {
			w := get(handler(), "/", c.header...)
			Expect(w.Code).To(Equal(c.code), "%v", c.header)
			Expect(w.Header()).NotTo(HaveKey("Access-Control-Allow-Origin"))
			Expect(w.Header().Get("X-Frame-Options")).To(Equal("DENY"))
			Expect(w.Header().Get("Cache-Control")).To(Equal("no-store"))
			Expect(w.Header().Get("Content-Security-Policy")).To(HavePrefix("default-src 'none'"))
		}
	})

	It("can be filtered and sorted, and says what it leaves out", func(ctx SpecContext) {
		for i := range 600 {
			obtain(ctx, fmt.Sprint("host-", i%3), fmt.Sprintf("key %03d", i))
		}
		inner := obtain(ctx, "host-9", "inner")
		stand(ctx, on.Client, "waiter-1", "key 599", inner)
		h := handler()
		shown := text(h, "/")
		Expect(shown).To(ContainSubstring("601 locks"))
		Expect(shown).To(And(ContainSubstring(" key 498 "), Not(ContainSubstring(" key 500 "))))
		Expect(shown).To(HaveSuffix("… and 101 more; filter them by a part of their key."))
		Expect(text(h, "/?sort=-key")).To(MatchRegexp("waiting key 599 .* key 598 "))
		Expect(text(h, "/?sort=-waiting")).To(MatchRegexp("waiting key 599 "))
		Expect(text(h, "/?sort=nonsense")).To(MatchRegexp("waiting inner .* key 000 "))
		shown = text(h, "/?q=KEY+12")
		Expect(shown).To(And(ContainSubstring(" key 120 "), ContainSubstring(" key 129 "), Not(ContainSubstring(" key 130 "))))
		Expect(shown).NotTo(ContainSubstring("waits for"))
		Expect(text(h, "/?q=host-9")).To(And(ContainSubstring("inner bob@host-9 pid 7"), Not(ContainSubstring("key 000"))))
		Expect(text(h, "/?q=waiter-1")).To(And(ContainSubstring("bob@waiter-1 pid 7 waits for key 599"), HaveSuffix("No lock matches.")))
	})

	It("looks once for all who look at the same time", func(ctx SpecContext) {
		obtain(ctx, "api-1", "a")
		h := handler()
		scans := func() int {
			stat := on.Client.InfoMap(ctx, "commandstats").Item("Commandstats", "cmdstat_scan")
			calls := 0
			_, _ = fmt.Sscanf(stat, "calls=%d", &calls)
			return calls
		}
		before := scans()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				defer GinkgoRecover()
				Expect(get(h, "/").Code).To(Equal(http.StatusOK))
			})
		}
		all.Wait()
		Expect(scans()-before).To(BeNumerically("<=", 4), "two for a look, and perhaps a second look")
		lock := obtain(ctx, "api-1", "b")
		Eventually(func() string { return text(h, "/") }).Should(ContainSubstring("2 locks"))
		spec.Release(ctx, lock)
		Eventually(func() string { return text(h, "/") }).Should(ContainSubstring("1 lock "))
	})

	It("does not wait for a user who has gone", func(ctx SpecContext) {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		w := httptest.NewRecorder()
		handler().ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodGet, "/", nil))
		Expect(w.Body.Len()).To(BeZero())
	})
})

var _ = Describe("The page of a server that fails", Label(spec.OnServer), func() {
	It("says so, and shows what was seen last", func(ctx SpecContext) {
		server := spec.StartServer()
		client := spec.Connect(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		spec.Obtain(ctx, locks, ttl, nil, "a")
		h := redislockhttp.Handler(client)
		Expect(text(h, "/")).To(ContainSubstring("1 lock "))
		Expect(server.Kill()).To(Succeed())
		Eventually(func() string { return text(h, "/") }).Should(MatchRegexp(`connection refused .* 1 lock .* a token`))
		Expect(text(redislockhttp.Handler(client), "/")).To(MatchRegexp(`connection refused Locks Nobody`))
		Expect(server.Restart()).To(Succeed())
		Eventually(func() string { return text(h, "/") }).Should(And(ContainSubstring("0 locks"), Not(ContainSubstring("refused"))))
	})
})

var _ = spec.DescribeQuorumOf(spec.OnServer, 3, "the page", func(on *spec.Quorum) {
	It("shows what a majority holds, as long as one answers", func(ctx SpecContext) {
		spec.Obtain(ctx, on.Locks, ttl, &redislock.Options{Metadata: metadata("api-1")}, "a")
		Expect(on.Servers[0].Own.Set(ctx, "b", "AAAAAAAAAAAAAAAAAAAAAA", ttl).Err()).To(Succeed())
		var clients []redis.UniversalClient
		for _, s := range on.Servers {
			clients = append(clients, s.Client)
		}
		h := redislockhttp.QuorumHandler(clients)
		Expect(text(h, "/")).To(MatchRegexp(`a bob@api-1 pid 7 metadata .* b no majority`))
		on.Fail(1, (*spec.Server).Kill)
		Eventually(func() string { return text(h, "/") }).WithTimeout(20 * time.Second).Should(
			And(ContainSubstring("a bob@api-1 pid 7"), Not(ContainSubstring("b no majority"))))
		on.Fail(2, (*spec.Server).Kill)
		Eventually(func() string { return text(h, "/") }).WithTimeout(20 * time.Second).Should(
			MatchRegexp(`1 of 3 servers answer.* a bob@api-1 pid 7`))
	})
})

// ahead is a server whose clock is an hour ahead.
type ahead struct{}

func (ahead) DialHook(next redis.DialHook) redis.DialHook { return next }
func (ahead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (ahead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if asked, is := cmd.(*redis.TimeCmd); is {
			asked.SetVal(asked.Val().Add(time.Hour))
		}
		return err
	}
}

var _ = spec.DescribeQuorumOf(spec.OnServer, 3, "the page", func(on *spec.Quorum) {
	It("says how long a waiter has waited by the clock of the servers", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, ttl, nil, "a")
		var clients []redis.UniversalClient
		for _, s := range on.Servers {
			stand(ctx, s.Own, "api-2", "a", lock)
			s.Client.AddHook(ahead{})
			clients = append(clients, s.Client)
		}
		Expect(text(redislockhttp.QuorumHandler(clients), "/")).To(ContainSubstring("bob@api-2 pid 7 waits for a for 1h00m"))
	})
})

var _ = Describe("The page of a Cluster", Label(spec.OnServer), func() {
	It("shows the keys of all masters, also through a type of the user's", func(ctx SpecContext) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: spec.StartCluster().Addrs()})
		DeferCleanup(client.Close)
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		for i := range 20 {
			spec.Obtain(ctx, locks, ttl, nil, fmt.Sprint("key ", i))
		}
		Expect(text(redislockhttp.Handler(client), "/")).To(ContainSubstring("20 locks"))
		Expect(text(redislockhttp.Handler(struct{ *redis.ClusterClient }{client}), "/")).To(ContainSubstring("20 locks"))
	})
})
