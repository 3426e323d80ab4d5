package script_test

import (
	"context"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

// What needs a server that only this spec uses.
var _ = Describe("The contract of a guard, on a server", Label(spec.OnServer), func() {
	// start starts a server.
	start := func(config ...string) *guarded {
		GinkgoHelper()
		addr := spec.StartServer(config...).Addr()
		return &guarded{Redis: &spec.Redis{Kind: spec.OnServer, Addr: addr, Client: spec.Connect(&redis.Options{Addr: addr})}}
	}

	Describe("whose user may not run INFO", func() {
		var on, limited *guarded
		refusal := MatchError(Or(ContainSubstring("can't run this command"), ContainSubstring("has no permissions to run the")))

		BeforeEach(func(ctx SpecContext) {
			on = start()
			Expect(on.Client.Do(ctx, "ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-info").Err()).To(Succeed())
			user := &redis.Options{Addr: on.Addr, Username: "limited", Password: "x"}
			limited = &guarded{Redis: &spec.Redis{Kind: spec.OnServer, Addr: on.Addr, Client: spec.Connect(user)}}
		})

		DescribeTable("an error, nothing written, also if others have opened it", func(ctx SpecContext, name, keys string, args ...any) {
			on.Set(ctx, "mine", "t")
			before := on.Everything(ctx)
			_, err := limited.run(ctx, name, keys, args...)
			Expect(err).To(refusal)
			Expect(on.Everything(ctx)).To(Equal(before))
			on.open(ctx)
			_, err = limited.run(ctx, name, keys, args...)
			Expect(err).To(refusal)
			Expect(on.locks(ctx)).To(Equal(before))
		}, obeying)

		It("a release deletes, and what is gone is no loss, but nothing is handed over", func(ctx SpecContext) {
			on.open(ctx)
			on.Set(ctx, "a", "t")
			on.Set(ctx, "b", "t")
			on.Set(ctx, "taken", "t0")
			inbox := on.Client.Subscribe(ctx, spec.Inboxes+"box")
			DeferCleanup(inbox.Close)
			Expect(inbox.Receive(ctx)).NotTo(BeNil())
			on.Stand(ctx, "la", 17, "box/7 1 60000 0 t7", spec.FullLife, true)
			Expect(limited.run(ctx, "release", "a la", "t")).To(Equal(none))
			message, err := inbox.ReceiveMessage(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(message.Payload).To(Equal("7"))
			Expect(limited.run(ctx, "release", "gone taken", "t", 2)).To(Equal(spec.List{int64(2)}))
			Expect(limited.run(ctx, "release_each", "b gone taken 1 2 3", "t", "t", "t")).To(Equal(spec.List{none, none, spec.List{int64(1)}}))
			Expect(on.Keys(ctx)).To(ConsistOf("la", "taken", keyname.GuardMarker))
		})
	})

	Describe("that is out of memory", func() {
		var on *guarded
		outOfMemory := MatchError(ContainSubstring("OOM"))

		BeforeEach(func() { on = start("maxmemory-policy noeviction") })
		// fill lets no command write more.
		fill := func(ctx context.Context) {
			GinkgoHelper()
			Expect(on.Client.ConfigSet(ctx, "maxmemory", "1").Err()).To(Succeed())
			Expect(on.Client.Set(ctx, "more", "x", 0).Err()).To(outOfMemory)
		}
		// begins are the ways in which a closure begins: what is in the marker before.
		begins := func(what string, body func(ctx context.Context)) {
			for name, write := range map[string]func(ctx context.Context){
				"no marker":           func(context.Context) {},
				"an old one":          func(ctx context.Context) { on.mark(ctx, other, hour, 0) },
				"one of shorter ttls": func(ctx context.Context) { on.mark(ctx, on.id(ctx), minute, 0) },
			} {
				It(what+", with "+name, func(ctx SpecContext) {
					write(ctx)
					on.Set(ctx, "mine", "t m")
					fill(ctx)
					body(ctx)
				})
			}
		}

		begins("it grants nothing, as long as the marker cannot be written", func(ctx context.Context) {
			before := on.Everything(ctx)
			closed := spec.List{int64(-2), int64(hour), on.id(ctx)}
			for range 2 { // no grace begins
				Expect(on.run(ctx, "obtain", "free lf", "t", "", hour)).To(Equal(closed))
				Expect(on.run(ctx, "obtain", "mine free", "t", "", hour, 2, "0")).To(Equal(closed))
				Expect(on.run(ctx, "obtain_each", "mine free 1 2", "t", "", hour, "t", "", hour)).To(Equal(spec.List{closed, closed}))
				Expect(on.run(ctx, "inspect", "mine", 1, "1")).To(Equal(closed))
			}
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		begins("it renews keys that are there, and puts none back", func(ctx context.Context) {
			for range 2 {
				for _, kind := range []string{"0", "1"} {
					Expect(on.run(ctx, "refresh", "mine", "t", hour, "", kind, "m")).To(Equal(spec.List{none, int64(hour), on.id(ctx)}))
					Expect(on.Client.PTTL(ctx, "mine").Val()).To(BeNumerically(">", 50*time.Minute))
					Expect(on.Client.PExpire(ctx, "mine", time.Minute).Err()).To(Succeed())
					_, err := on.run(ctx, "refresh", "mine gone", "t", hour, "", kind, "m")
					Expect(err).To(outOfMemory)
					Expect(on.locks(ctx)).To(Equal(map[string]string{"mine": "t m 1m"}))
				}
			}
		})

		begins("it executes no renewals if a deposed master may go on", func(ctx context.Context) {
			before := on.Everything(ctx)
			for range 2 {
				Expect(on.RunGuarded(ctx, "refresh", "mine", deposed, "t", hour, "", "1", "m")).
					To(Equal(spec.List{none, int64(hour + minute), on.id(ctx), int64(-minute)}))
			}
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		It("it does the same if it cannot write a longer deposed", func(ctx SpecContext) {
			on.mark(ctx, on.id(ctx), hour, 0)
			on.Set(ctx, "mine", "t m")
			fill(ctx)
			before := on.Everything(ctx)
			for range 2 {
				Expect(on.RunGuarded(ctx, "obtain", "free lf", deposed, "t", "", hour)).
					To(Equal(spec.List{int64(-2), int64(hour + minute), on.id(ctx)}))
				Expect(on.RunGuarded(ctx, "refresh", "mine", deposed, "t", hour, "", "1", "m")).
					To(Equal(spec.List{none, int64(hour + minute), on.id(ctx), int64(-minute)}))
			}
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		It("it releases", func(ctx SpecContext) {
			on.Set(ctx, "mine", "t m")
			fill(ctx)
			Expect(on.run(ctx, "release", "gone mine", "t", 2)).To(Equal(none))
			Expect(on.locks(ctx)).To(BeEmpty())
		})

		It("does as without a guard while that is open", func(ctx SpecContext) {
			on.open(ctx)
			on.Set(ctx, "mine", "t m")
			on.mark(ctx, on.id(ctx), hour+minute, minute)
			fill(ctx)
			before := on.marker(ctx)
			_, err := on.RunGuarded(ctx, "obtain", "free lf", deposed, "t", "", hour)
			Expect(err).To(outOfMemory)
			Expect(on.RunGuarded(ctx, "refresh", "mine", deposed, "t", hour, "", "1", "m")).To(Equal(none))
			Expect(on.RunGuarded(ctx, "refresh", "mine gone", deposed, "t", hour, "", "1", "m")).To(Equal(spec.List{int64(-2)}))
			Expect(on.RunGuarded(ctx, "inspect", "mine", deposed, 1, "1")).To(ContainElement("t m"))
			Expect(on.RunGuarded(ctx, "release", "mine gone", deposed, "t", 2)).To(Equal(spec.List{int64(-2)}))
			Expect(on.marker(ctx)).To(Equal(before))
		})

		It("opens when the time has come, and goes on until it can write that", func(ctx SpecContext) {
			on.shut(ctx, 0)
			on.Set(ctx, "mine", "t m")
			fill(ctx)
			for range 2 {
				Eventually(func() (any, error) { return on.run(ctx, "refresh", "mine", "t", hour, "", "1", "m") }).Should(Equal(none))
			}
			Expect(on.Client.ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
			Expect(on.run(ctx, "obtain", "free lf", "t", "", hour)).To(Equal(int64(1)))
			Expect(on.marker(ctx)).To(HaveSuffix(" 3600000 0"))
		})

		It("begins the grace when there is memory again", func(ctx SpecContext) {
			fill(ctx)
			Expect(on.run(ctx, "obtain", "free lf", "t", "", hour)).To(HaveLen(3))
			Expect(on.Client.ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
			Expect(on.run(ctx, "obtain", "free lf", "t", "", hour)).To(Equal(spec.List{int64(-2), int64(hour), on.id(ctx)}))
			Expect(on.marker(ctx)).To(marked(on.id(ctx), hour, 0, BeNumerically(">", 0)))
		})
	})

	DescribeTable("that is a replica with the marker of its master is READONLY, and closed after its promotion",
		func(ctx SpecContext, readOnly string) {
			master, replica := start("repl-diskless-sync-delay 0"), start("replica-read-only "+readOnly)
			host, port, err := net.SplitHostPort(master.Addr)
			Expect(err).NotTo(HaveOccurred())
			Expect(replica.Client.Do(ctx, "REPLICAOF", host, port).Err()).To(Succeed())
			Eventually(func() bool { return replica.id(ctx) == master.id(ctx) }).WithTimeout(30 * time.Second).Should(BeTrue())
			master.open(ctx) // the first replica gives a server a new id
			Expect(master.run(ctx, "obtain", "a b", "t", "", hour, 2, "0")).To(Equal(int64(1)))
			Eventually(func() map[string]string { return replica.Everything(ctx) }).WithTimeout(30 * time.Second).Should(Equal(master.Everything(ctx)))

			readonly := MatchError("READONLY a replica grants no locks")
			_, err = replica.run(ctx, "obtain", "free lf", "t", "", hour)
			Expect(err).To(readonly)
			_, err = replica.run(ctx, "refresh", "a b", "t", 2*hour, "", "1", "")
			Expect(err).To(readonly)
			_, err = replica.run(ctx, "inspect", "a b", 2, "1")
			Expect(err).To(readonly)
			Expect(replica.Everything(ctx)).To(Equal(master.Everything(ctx)))

			Expect(replica.Client.Do(ctx, "REPLICAOF", "NO", "ONE").Err()).To(Succeed())
			Expect(replica.run(ctx, "obtain", "a lf", "t", "", hour)).To(Equal(spec.List{int64(-2), int64(hour), replica.id(ctx)}))
			Expect(replica.id(ctx)).NotTo(Equal(master.id(ctx)))
			Expect(replica.marker(ctx)).To(marked(replica.id(ctx), hour, 0, BeNumerically(">", 0)))
			Expect(master.run(ctx, "obtain", "free lf", "t", "", hour)).To(Equal(int64(1)), "nobody has told it")
		},
		Entry("a replica", "yes"), Entry("a writable one", "no"))

	It("that is started again with its data is closed", func(ctx SpecContext) {
		server := spec.StartServer("appendonly yes", "appendfsync always")
		client := func() *guarded {
			return &guarded{Redis: &spec.Redis{Client: spec.Connect(&redis.Options{Addr: server.Addr()})}}
		}
		on := client()
		on.open(ctx)
		Expect(on.run(ctx, "obtain", "a la", "t", "", hour)).To(Equal(int64(1)))
		Expect(server.Restart()).To(Succeed())
		on = client()
		Expect(on.run(ctx, "obtain", "b lb", "t", "", hour)).To(Equal(spec.List{int64(-2), int64(hour), on.id(ctx)}))
		Expect(on.run(ctx, "refresh", "a", "t", hour, "", "1", "")).To(HaveExactElements(none, left(hour), on.id(ctx)))
	})

	It("that forgets the marker and all locks is closed, and takes them back", func(ctx SpecContext) {
		on := start()
		on.open(ctx)
		Expect(on.run(ctx, "obtain", "a b", "t", "m", hour, 2, "0")).To(Equal(int64(1)))
		Expect(on.Client.FlushAll(ctx).Err()).To(Succeed())
		Expect(on.run(ctx, "obtain", "a la", "other", "", hour)).To(Equal(spec.List{int64(-2), int64(hour), on.id(ctx)}))
		Expect(on.run(ctx, "refresh", "a b", "t", hour, "", "1", "m")).
			To(HaveExactElements(none, left(hour), on.id(ctx), int64(1), int64(2)))
		on.mark(ctx, on.id(ctx), hour, 0, on.now(ctx))
		Expect(on.run(ctx, "obtain", "a la", "other", "", hour)).To(Equal(none))
		Expect(on.Keys(ctx)).To(ConsistOf("a", "b", keyname.GuardMarker))
	})
})
