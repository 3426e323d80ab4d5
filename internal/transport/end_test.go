package transport_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/incarnation"
	"github.com/redislock/redislock/internal/testing/spec"
)

// A guard makes scripts end their KEYS and ARGV with something of its own.
var _ = spec.DescribeOnRedis("A script with an end", func(on *spec.Redis) {
	const grace = "3600003 3" // of the guard, as internal/script/marker.lua wants it
	guard := redislock.WithGuard(time.Hour, 2*time.Millisecond+1)

	BeforeEach(func() {
		if on.Memory != nil {
			incarnation.Of(on.Memory)
		}
	})
	// open makes the guard one that is open, under a prefix for keys.
	open := func(ctx context.Context, prefix string) {
		GinkgoHelper()
		id := spec.Term(ctx, on.Client)
		Expect(id).NotTo(BeEmpty())
		Expect(on.Client.Set(ctx, prefix+keyname.GuardMarker, id+" "+grace, 0).Err()).To(Succeed())
	}
	// use calls each method that runs a script once or more often.
	use := func(ctx context.Context, locks *redislock.Client) {
		GinkgoHelper()
		opt := &redislock.Options{Metadata: "m", FenceKey: "fence", Explain: true}
		lock := spec.Obtain(ctx, locks, time.Minute, opt, "a", "b")
		_, err := locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		_, err = locks.Attach(ctx, []string{"a", "b"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		_, err = locks.Inspect(ctx, "a", "b")
		Expect(err).NotTo(HaveOccurred())
		_, err = locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "one").Release(ctx)).To(Succeed())
	}
	// seen returns the scripts that client sends from now on, as text.
	seen := func(client *redis.Client) func() [][]string {
		var mu sync.Mutex
		var all [][]string
		client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
			if strings.HasPrefix(cmd.Name(), "eval") {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, spec.Words(cmd))
			}
		}})
		return func() [][]string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
	}
	lastKey := func(args []string) string {
		GinkgoHelper()
		var keys int
		Expect(fmt.Sscan(args[2], &keys)).To(Equal(1))
		return args[2+keys]
	}
	// isGuarded reports whether a command is of a script that has the end.
	isGuarded := func(args []string) bool {
		return slices.ContainsFunc([]string{"obtain", "refresh", "release", "inspect"}, func(name string) bool {
			return spec.Running(name)(args)
		})
	}

	It("has it in every call, and no other script does", func(ctx SpecContext) {
		open(ctx, "")
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
		sent := seen(on.Client)
		locks := redislock.New(on.Client, guard)
		DeferCleanup(locks.Close)
		use(ctx, locks)
		guarded := 0
		for _, args := range sent() {
			if !isGuarded(args) {
				Expect(args).NotTo(ContainElement(Or(Equal(keyname.GuardMarker), Equal(grace))))
				continue
			}
			guarded++
			Expect(lastKey(args)).To(Equal(keyname.GuardMarker))
			Expect(args[len(args)-1]).To(Equal(grace))
		}
		Expect(guarded).To(BeNumerically(">=", 8))
		Expect(len(sent())).To(BeNumerically(">=", guarded+3), "the others are TTL, Line and Explain")
	})

	It("has another hash, and without one no end", func(ctx SpecContext) {
		sent := seen(on.Client)
		locks := redislock.New(on.Client)
		DeferCleanup(locks.Close)
		use(ctx, locks)
		for _, args := range sent() {
			Expect(args).NotTo(ContainElement(keyname.GuardMarker))
			Expect(args).NotTo(ContainElement(ContainSubstring(`"READONLY a replica grants no locks"`)))
		}
		Expect(on.Keys(ctx)).NotTo(ContainElement(keyname.GuardMarker))
	})

	It("has it once in a command for several calls", func(ctx SpecContext) {
		open(ctx, "")
		proxy := on.NewProxy()
		client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, ReadTimeout: 5 * time.Second})
		sent := seen(client)
		locks := redislock.New(client, guard)
		DeferCleanup(locks.Close)
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "warm").Release(ctx)).To(Succeed())
		for _, name := range []string{"obtain", "release"} {
			proxy.Add(faultproxy.Rule{Match: spec.Running(name), Times: 30, Action: faultproxy.DelayReply(100 * time.Millisecond)})
		}
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				defer GinkgoRecover()
				opt := &redislock.Options{Metadata: fmt.Sprint("m", i)}
				for range 3 { // the first calls ask the server whether it stands alone
					lock := spec.Obtain(ctx, locks, time.Minute, opt, fmt.Sprint("key-", i))
					Expect(lock.Release(ctx)).To(Succeed())
				}
			})
		}
		callers.Wait()
		Expect(on.Keys(ctx)).To(ConsistOf(keyname.GuardMarker))
		var joint []string
		for _, args := range sent() {
			for name, each := range map[string]int{"obtain_each": 3, "release_each": 1} {
				if !spec.Running(name)(args) {
					continue
				}
				joint = append(joint, name)
				var keys int
				Expect(fmt.Sscan(args[2], &keys)).To(Equal(1))
				Expect(keys%2).To(Equal(1), "two for each call, and the marker")
				Expect(args).To(HaveLen(3 + keys + each*(keys-1)/2 + 1))
				Expect(lastKey(args)).To(Equal(keyname.GuardMarker))
				Expect(args[len(args)-1]).To(Equal(grace))
			}
		}
		if on.Kind == spec.OnServer || spec.Pipelined { // miniredis does not say what it is
			Expect(joint).To(ContainElements("obtain_each", "release_each"))
		}
	})

	It("has it through a client of which only EvalSha and Eval may be called", func(ctx SpecContext) {
		open(ctx, "")
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
		wrapper := &spec.Wrapper{Scripter: &hiding{on.Client}}
		locks := redislock.New(wrapper, guard)
		DeferCleanup(locks.Close)
		use(ctx, locks)
		var guarded, whole int
		for _, call := range wrapper.Seen {
			if strings.Contains(call, keyname.GuardMarker) {
				guarded++
				Expect(call).To(MatchRegexp(`^evalsha \[.*` + keyname.GuardMarker + `\] \[.*` + grace + `\]$|^eval `))
			}
			if strings.HasPrefix(call, "eval ") {
				whole++
			}
		}
		Expect(guarded).To(BeNumerically(">=", 8))
		Expect(whole).To(BeNumerically(">", 0), "the server knew none of the scripts")
		Expect(on.Keys(ctx)).To(ConsistOf(keyname.GuardMarker, "fence"))
	})

	It("has it behind what a hook makes of it, and the marker of each tenant is its own", func(ctx SpecContext) {
		hook := &spec.PrefixHook{Prefix: spec.ByTenant}
		open(ctx, "one:")
		on.Client.AddHook(hook)
		locks := redislock.New(on.Client, guard)
		DeferCleanup(locks.Close)
		use(spec.WithTenant(ctx, "one:"), locks)
		_, err := locks.Obtain(spec.WithTenant(ctx, "two:"), "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained), "the guard of the other tenant closes at its first use")
		Expect(on.Keys(ctx)).To(ConsistOf("one:"+keyname.GuardMarker, "one:fence", "two:"+keyname.GuardMarker))
		Expect(hook.Pipelined.Load()).To(BeZero())
	})

	// A shared pipeline or script would go past what the hook does for each ctx.
	DescribeTable("is known to be rewritten by a hook that changes only", func(ctx SpecContext, change func(args []any)) {
		open(ctx, "")
		open(ctx, "x:")
		trips := &spec.PipelineCount{}
		on.Client.AddHook(trips)
		on.Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
			if args := cmd.Args(); isGuarded(spec.Words(cmd)) {
				change(args)
			}
		}})
		locks := redislock.New(on.Client, guard)
		DeferCleanup(locks.Close)
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed(), "it sees a single call")
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				defer GinkgoRecover()
				Expect(spec.Obtain(ctx, locks, time.Minute, nil, fmt.Sprint("key-", i)).Release(ctx)).To(Succeed())
			})
		}
		callers.Wait()
		_, together := trips.Counts()
		Expect(together).To(BeZero())
	},
		Entry("the key", func(args []any) { args[2+args[2].(int)] = "x:" + keyname.GuardMarker }),
		Entry("the argument", func(args []any) { args[len(args)-1] = "3600003 2" }),
	)
})
