package redispage_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/redispage"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// permits returns the options for a lock that lets one of its keys have so many holders.
func permits(key string, most int, metadata string) *redislock.Options {
	return &redislock.Options{Permits: map[string]int{key: most}, Metadata: metadata}
}

// readPage returns what docs/redis.md says about commands.
func readPage() redispage.Features {
	GinkgoHelper()
	page, err := redispage.Read(spec.Path("docs/redis.md"))
	Expect(err).NotTo(HaveOccurred())
	return page
}

var _ = Describe("docs/redis.md", func() {
	var page redispage.Features

	BeforeEach(func() { page = readPage() })

	// Also what a script does only after a failure, which the specs below do not see.
	DescribeTable("names each command of", func(script string, features ...string) {
		var named []string
		for _, feature := range features {
			for _, command := range page.Commands(feature) {
				named = append(named, firstWord(command))
			}
		}
		calls := regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(spec.Written(script), -1)
		Expect(calls).NotTo(BeEmpty())
		for _, call := range calls {
			Expect(named).To(ContainElement(call[1]))
		}
	},
		func(script string, _ ...string) string { return script + ".lua" },
		Entry(nil, "obtain", "Locking", "Fencing", "Waiting in line", "Sharing"),
		Entry(nil, "obtain_each", "Locking"),
		Entry(nil, "refresh", "Renewing"),
		Entry(nil, "release", "Handing over"),
		Entry(nil, "release_each", "Locking"),
		Entry(nil, "pttl", "Asking"),
		Entry(nil, "fence", "Fencing"),
		Entry(nil, "inspect", "Inspecting", "Locks inside locks"),
		Entry(nil, "waiters", "Looking at a line"),
		Entry(nil, "blocker", "Explaining"),
		Entry(nil, "note", "Inspecting"),
		Entry(nil, "note", "Explaining"),
		Entry(nil, "line", "Waiting in line"),
		Entry(nil, "beat", "Waiting in line"),
		Entry(nil, "marker", "Guarding"),
		Entry(nil, "shared", "Sharing"),
	)

	It("knows every script", func() {
		Expect(spec.Scripts()).To(HaveLen(15), "the table above has a row for each")
	})

	It("shows an ACL with all of them", func() {
		_, shown, _ := strings.Cut(spec.Read("docs/redis.md"), "ACL SETUSER")
		shown, after, _ := strings.Cut(shown, "```")
		var rights []string
		for _, feature := range []string{
			"Locking", "Renewing", "Asking", "Attaching", "Inspecting", "Looking at a line", "Explaining", "Sharing", "Fencing",
			"Waiting in line", "Handing over", "Clusters",
		} {
			rights = append(rights, redispage.Rights(page.Commands(feature))...)
		}
		rights = slices.DeleteFunc(rights, func(right string) bool { return right == "+msetex" })
		slices.Sort(rights)
		words := strings.Fields(shown)
		words = slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, "+") })
		slices.Sort(words)
		Expect(words).To(Equal(slices.Compact(rights)))

		guarding := slices.DeleteFunc(redispage.Rights(page.Commands("Guarding")), func(right string) bool {
			return right == "+msetex" || slices.Contains(words, right)
		})
		Expect(guarding).To(Equal([]string{"+info"}))
		Expect(after).To(ContainSubstring("`~" + keyname.GuardMarker + " +info`"))
	})
})

// runOnlyNamed expects that a user who may run only what the page names for some features can use the first of them on
// these servers, that nothing is denied but what is spared, and that each command in the first feature's own row is used.
// use gets the options of that user.
func runOnlyNamed(servers []*redistest.Server, features []string, use func(user *redis.Options), spared ...string) {
	GinkgoHelper()
	admin := spec.Connect(&redis.Options{Addr: servers[0].Addr()})
	known, err := admin.Command(context.Background()).Result()
	Expect(err).NotTo(HaveOccurred())
	has := func(command string) bool { _, ok := known[strings.ToLower(firstWord(command))]; return ok }
	lacks := func(command string) bool { return !has(command) }
	page := readPage()
	var allowed []string
	for _, feature := range features {
		allowed = append(allowed, slices.DeleteFunc(page.Commands(feature), lacks)...)
	}
	own := slices.DeleteFunc(slices.Clone(page[features[0]].Commands), lacks)
	if has("MSETEX") && features[0] == "Locking" { // it replaces these two
		own = slices.DeleteFunc(own, func(c string) bool { return c == "MSETNX" || c == "PEXPIRE" })
	}
	for _, server := range servers {
		Expect(server.Restrict("app", "pw", append(redispage.Rights(allowed), "&"+keyname.InboxPrefix+"*")...)).To(Succeed())
	}
	ran, denied := observe(servers, func() { use(&redis.Options{Addr: servers[0].Addr(), Username: "app", Password: "pw"}) })
	Expect(denied).To(Equal(spared))
	for _, command := range own {
		Expect(ran).To(ContainElement(firstWord(command)), "%s is named, and not used", command)
	}
	for _, command := range ran {
		Expect(slices.ContainsFunc(allowed, func(c string) bool { return firstWord(c) == command })).To(BeTrue(), "%s is used", command)
	}
}

// observe calls f, and returns which commands the servers have run meanwhile, and which they have denied.
func observe(servers []*redistest.Server, f func()) (ran, denied []string) {
	GinkgoHelper()
	if len(servers) == 0 {
		f()
		return nil, nil
	}
	here, no, err := servers[0].Observe(func() { ran, denied = observe(servers[1:], f) })
	Expect(err).NotTo(HaveOccurred())
	ran, denied = append(ran, here...), append(denied, no...)
	slices.Sort(denied)
	return ran, slices.Compact(denied)
}

// firstWord returns a command without its subcommand.
func firstWord(command string) string {
	first, _, _ := strings.Cut(command, " ")
	return first
}

var _ = Describe("A user who may run only what docs/redis.md names for it can use", Label(spec.OnServer), func() {
	var (
		server *redistest.Server
		on     *spec.Redis // as a user who may do everything
		token  string      // of the holder of "held"
	)

	BeforeEach(func(ctx SpecContext) {
		spec.CheckLeaks()
		server = spec.StartServer()
		on = &spec.Redis{Client: spec.Connect(&redis.Options{Addr: server.Addr()})}
		token = spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "held").Token()
		on.Stand(ctx, keyname.LineOf("held"), 17, "box/7 1 60000 0 t7", 3*time.Second, true)
		Expect(on.Client.LPush(ctx, "list", "entry").Err()).To(Succeed())
		// A limit makes a script look for the least of those.
		for range 2 {
			spec.Obtain(ctx, redislock.New(on.Client), time.Minute, permits("shared", 3, ""), "shared")
		}
	})

	// can expects that a user who may run only what the page names for a feature can do that.
	can := func(feature string, use func(locks *redislock.Client, refused chan struct{}), spared ...string) {
		GinkgoHelper()
		runOnlyNamed([]*redistest.Server{server}, []string{feature}, func(user *redis.Options) {
			refused := make(chan struct{}, 10)
			tracer := &redislock.Tracer{Refused: func(context.Context, redislock.Refused) { refused <- struct{}{} }}
			locks := redislock.New(spec.Connect(user), redislock.WithTracer(tracer))
			defer locks.Close()
			use(locks, refused)
		}, spared...)
	}

	It("Locking", func(ctx SpecContext) {
		can("Locking", func(locks *redislock.Client, _ chan struct{}) {
			Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
			_, err := locks.Obtain(ctx, "b", time.Minute, &redislock.Options{Token: token})
			Expect(err).NotTo(HaveOccurred())
			_, err = locks.ObtainMulti(ctx, []string{"a", "list"}, time.Minute, nil)
			Expect(err).To(MatchError(ContainSubstring("WRONGTYPE")))
			mine := &redislock.Options{Token: "mine"}
			spec.Obtain(ctx, locks, time.Minute, mine, "c", "d")
			spec.Obtain(ctx, locks, time.Hour, mine, "c", "d")
			_, err = locks.Obtain(ctx, "c", time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(spec.Obtain(ctx, locks, time.Hour, mine, "c", "d").Release(ctx)).To(Succeed())
		})
	})

	It("Renewing", func(ctx SpecContext) {
		can("Renewing", func(locks *redislock.Client, _ chan struct{}) {
			kept := spec.Obtain(ctx, locks, time.Second, nil, "a")
			held, stop := kept.KeepAlive(ctx)
			time.Sleep(1500 * time.Millisecond)
			Expect(held.Err()).NotTo(HaveOccurred())
			stop()
			Expect(kept.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "new"})).To(Succeed())
			again, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Token: kept.Token()})
			Expect(err).NotTo(HaveOccurred())
			Expect(again.Release(ctx)).To(Succeed())
			Expect(kept.Refresh(ctx, time.Minute, nil)).To(Equal(redislock.ErrNotObtained))
			Expect(locks.Do(ctx, []string{"b"}, time.Minute, nil, func(context.Context) error { return nil })).To(Succeed())
		})
	})

	It("Asking", func(ctx SpecContext) {
		can("Asking", func(locks *redislock.Client, _ chan struct{}) {
			Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").TTL(ctx)).To(BeNumerically(">", 0))
		})
	})

	It("Attaching", func(ctx SpecContext) {
		can("Attaching", func(locks *redislock.Client, _ chan struct{}) {
			_, err := locks.Attach(ctx, []string{"held"}, token)
			Expect(err).NotTo(HaveOccurred())
		})
	})

	It("Inspecting", func(ctx SpecContext) {
		can("Inspecting", func(locks *redislock.Client, _ chan struct{}) {
			found, err := locks.Inspect(ctx, "held", "shared")
			Expect(err).NotTo(HaveOccurred())
			Expect(found[0].Waiters).To(Equal(1))
			Expect(found[1].HolderCount).To(Equal(2))
		})
	})

	It("Looking at a line", func(ctx SpecContext) {
		can("Looking at a line", func(locks *redislock.Client, _ chan struct{}) {
			Expect(locks.Line(ctx, "held")).To(HaveLen(1))
		})
	})

	It("Explaining", func(ctx SpecContext) {
		can("Explaining", func(locks *redislock.Client, _ chan struct{}) {
			held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
			Expect(err).To(HaveField("Token", held.Token()))
			_, err = locks.Obtain(ctx, "shared", time.Minute, &redislock.Options{Explain: true})
			Expect(err).To(HaveField("Holders", 2))
		})
	})

	It("Sharing", func(ctx SpecContext) {
		Expect(on.Client.ZAdd(ctx, keyname.LineOf("b"), redis.Z{Score: 17, Member: "box/7 1 60000 0 t7"},
			redis.Z{Score: spec.Mark(time.Now().Add(time.Minute), 120, true), Member: "~box"}).Err()).To(Succeed())
		can("Sharing", func(locks *redislock.Client, _ chan struct{}) {
			lock := spec.Obtain(ctx, locks, time.Minute, permits("shared", 3, "mine"), "shared", "a")
			_, err := locks.Obtain(ctx, "shared", time.Minute, permits("shared", 3, ""))
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "new"})).To(Succeed())
			Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
			attached, err := locks.Attach(ctx, []string{"shared"}, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			Expect(attached.Metadata()).To(Equal("new"))
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(spec.Obtain(ctx, locks, time.Minute, permits("free", 3, "mine"), "free").Release(ctx)).To(Succeed())
			_, err = locks.Obtain(ctx, "b", time.Minute, &redislock.Options{Shared: []string{"b"}})
			Expect(err).To(Equal(redislock.ErrNotObtained), "somebody else waits for it")
		})
	})

	It("Fencing", func(ctx SpecContext) {
		can("Fencing", func(locks *redislock.Client, _ chan struct{}) {
			fenced := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "f"}, "a")
			Expect(fenced.FenceToken()).To(BeNumerically(">", 0))
		})
	})

	It("Guarding", func(ctx SpecContext) {
		guard := redislock.WithGuard(time.Second, 0)
		runOnlyNamed([]*redistest.Server{server}, []string{"Guarding"}, func(user *redis.Options) {
			locks := redislock.New(spec.Connect(user), guard)
			defer locks.Close()
			Expect(on.Client.Set(ctx, "kept", "mine", time.Minute).Err()).To(Succeed())
			_, err := locks.Obtain(ctx, "a", time.Second, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained), "it is closed")
			_, err = locks.Attach(ctx, []string{"kept"}, "mine")
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			var lock *redislock.Lock
			Eventually(func() error {
				lock, err = locks.Obtain(ctx, "a", time.Second, nil)
				return err
			}).WithTimeout(10 * time.Second).Should(Succeed())
			Expect(lock.Release(ctx)).To(Succeed())
		})
	})

	// twoWait lets two wait in line for a key, and releases it.
	twoWait := func(ctx context.Context) func(locks *redislock.Client, refused chan struct{}) {
		return func(locks *redislock.Client, refused chan struct{}) {
			// A waiter behind one that is about to count as dead looks for others in between.
			on.Stand(ctx, keyname.LineOf("b"), 17, "box/7 1 60000 0 t7", 900*time.Millisecond, true)
			Expect(spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "b").Release(ctx)).To(Succeed())
			Expect(refused).To(Receive())

			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			got := make(chan error, 2)
			for range 2 {
				go func() {
					lock, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Queue: true})
					if err == nil {
						err = lock.Release(ctx)
					}
					got <- err
				}()
				Eventually(refused).Should(Receive())
			}
			time.Sleep(1500 * time.Millisecond) // a subscription that is silent for a second is asked whether it is alive
			Expect(lock.Release(ctx)).To(Succeed())
			for range 2 {
				Eventually(got).WithTimeout(5 * time.Second).Should(Receive(BeNil()))
			}
		}
	}

	It("Waiting in line", func(ctx SpecContext) {
		can("Waiting in line", twoWait(ctx))
	})

	It("Locks inside locks", func(ctx SpecContext) {
		can("Locks inside locks", func(locks *redislock.Client, _ chan struct{}) {
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			holding, stop := lock.KeepAlive(ctx)
			defer stop()
			outer := spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
			inner := spec.StartWaiter(holding, locks, time.Minute, &redislock.Options{Queue: true}, "held")
			waits := func() []string {
				found, err := locks.Inspect(ctx, "a")
				Expect(err).NotTo(HaveOccurred())
				return found[0].Waits
			}
			Eventually(waits).WithTimeout(5 * time.Second).Should(Equal([]string{"held"}))
			inner.Cancel()
			outer.Cancel()
			<-inner.Done
			<-outer.Done
			Expect(lock.Release(ctx)).To(Succeed())
		})
	})

	It("Handing over", func(ctx SpecContext) {
		can("Handing over", twoWait(ctx))
	})
})

var _ = Describe("On a Cluster, a user who may run only what docs/redis.md names for it can use", Label(spec.OnServer), func() {
	var cluster *redistest.Cluster

	BeforeEach(func() {
		cluster = spec.StartCluster()
	})

	It("Clusters, and fencing there", func(ctx SpecContext) {
		runOnlyNamed(cluster.Nodes(), []string{"Clusters", "Fencing"}, func(user *redis.Options) {
			client := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: cluster.Addrs(), Username: user.Username, Password: user.Password,
			})
			defer client.Close()
			locks := redislock.New(client)
			defer locks.Close()
			lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{AcrossSlots: true, FenceKey: "f"}, "a", "b", "c")
			Expect(lock.FenceToken()).To(BeNumerically(">", 0))
			Expect(lock.Release(ctx)).To(Succeed())
		})
	})
})
