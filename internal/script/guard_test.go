package script_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/incarnation"
	"github.com/redislock/redislock/internal/testing/spec"
)

// What ends ARGV under a guard, with a longest ttl of an hour.
const (
	noDeposed = "3600000 0"     // no master goes on granting after it was deposed
	deposed   = "3660000 60000" // one may, for a minute
)

// guarded is a Redis that tells a guard who it is.
type guarded struct {
	*spec.Redis
	identity *incarnation.Server // nil on a real server
}

// describeGuarded is DescribeOnRedis for specs of a guard.
func describeGuarded(what string, specs func(on *guarded)) bool {
	return spec.DescribeOnRedis("The contract, with a guard, of "+what, func(redis *spec.Redis) {
		on := &guarded{Redis: redis}
		BeforeEach(func() {
			if on.identity = nil; on.Memory != nil {
				on.identity = incarnation.Of(on.Memory)
			}
		})
		specs(on)
	})
}

// run runs a script under the guard noDeposed.
func (on *guarded) run(ctx context.Context, name, keys string, args ...any) (any, error) {
	return on.RunGuarded(ctx, name, keys, noDeposed, args...)
}

// id returns what the server calls its present term.
func (on *guarded) id(ctx context.Context) string {
	GinkgoHelper()
	id := spec.Term(ctx, on.Client)
	Expect(id).NotTo(BeEmpty())
	return id
}

// now is the server's time in ms.
func (on *guarded) now(ctx context.Context) int64 {
	GinkgoHelper()
	now, err := on.Client.Time(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	return now.UnixMilli()
}

func (on *guarded) marker(ctx context.Context) string {
	return on.Client.Get(ctx, keyname.GuardMarker).Val()
}

// mark writes words into the marker, as no script has.
func (on *guarded) mark(ctx context.Context, words ...any) {
	GinkgoHelper()
	text := strings.TrimSuffix(fmt.Sprintln(words...), "\n")
	Expect(on.Client.Set(ctx, keyname.GuardMarker, text, 0).Err()).To(Succeed())
}

// open makes the guard one that has been open for a while.
func (on *guarded) open(ctx context.Context) {
	GinkgoHelper()
	on.mark(ctx, on.id(ctx), hour, 0)
}

// shut makes the guard one that is closed for another ms, and returns when it opens.
func (on *guarded) shut(ctx context.Context, ms int64) (opens int64) {
	GinkgoHelper()
	opens = on.now(ctx) + ms
	on.mark(ctx, on.id(ctx), hour, 0, opens)
	return opens
}

// locks is everything but the marker.
func (on *guarded) locks(ctx context.Context) map[string]string {
	all := on.Everything(ctx)
	delete(all, keyname.GuardMarker)
	return all
}

// left matches how long a guard is closed that was left ms when the spec began.
func left(ms int64) types.GomegaMatcher {
	return And(BeNumerically("<=", ms), BeNumerically(">", ms-10*minute))
}

// marked matches a marker of a closed guard, and opens when it opens.
func marked(id string, grace, deposed int64, opens types.GomegaMatcher) types.GomegaMatcher {
	return WithTransform(func(marker string) []string { return strings.Split(marker, " ") },
		HaveExactElements(id, strconv.FormatInt(grace, 10), strconv.FormatInt(deposed, 10), WithTransform(func(ms string) (int64, error) {
			return strconv.ParseInt(ms, 10, 64)
		}, opens)))
}

// Obtain stands for all scripts that obey a guard.
var _ = describeGuarded("marker.lua", func(on *guarded) {
	obtain := func(ctx context.Context) (any, error) { return on.run(ctx, "obtain", "a la", "t", "", minute) }
	// closesAnew expects that the next obtain begins a grace of so many ms.
	closesAnew := func(ctx context.Context, grace int64) {
		GinkgoHelper()
		before := on.now(ctx)
		Expect(obtain(ctx)).To(Equal(spec.List{int64(-2), grace, on.id(ctx)}))
		Expect(on.marker(ctx)).To(marked(on.id(ctx), grace, 0,
			And(BeNumerically(">=", before+grace), BeNumerically("<=", on.now(ctx)+grace))))
		Expect(on.locks(ctx)).To(BeEmpty())
	}

	It("closed: no marker; it has no expiry", func(ctx SpecContext) {
		closesAnew(ctx, hour)
		Expect(on.Client.PTTL(ctx, keyname.GuardMarker).Val()).To(Equal(time.Duration(-1)))
	})

	It("closed: a replay begins no other grace", func(ctx SpecContext) {
		closesAnew(ctx, hour)
		before := on.marker(ctx)
		for range 2 {
			Expect(obtain(ctx)).To(HaveExactElements(int64(-2), left(hour), on.id(ctx)))
		}
		Expect(on.marker(ctx)).To(Equal(before))
	})

	It("0: it is open, and nothing is written for it", func(ctx SpecContext) {
		on.open(ctx)
		Expect(on.Client.PExpire(ctx, keyname.GuardMarker, 2*time.Hour).Err()).To(Succeed())
		Expect(obtain(ctx)).To(Equal(int64(1)))
		Expect(on.Everything(ctx)).To(Equal(map[string]string{
			"a": "t 1m", keyname.GuardMarker: fmt.Sprintf("%s %d 0 120m", on.id(ctx), hour),
		}))
	})

	It("0: it opens when its time has come, and the marker says so", func(ctx SpecContext) {
		on.shut(ctx, 0)
		Eventually(func() (any, error) { return obtain(ctx) }).Should(Equal(int64(1)))
		Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", hour, " 0")))
	})

	DescribeTable("closed: for a whole grace anew, in a new term", func(ctx SpecContext, words func(now int64) []any, grace int64) {
		on.mark(ctx, words(on.now(ctx))...)
		closesAnew(ctx, grace)
	},
		Entry("the guard was open", func(int64) []any { return []any{other, hour, 0} }, int64(hour)),
		Entry("it was closed", func(now int64) []any { return []any{other, hour, 0, now + minute} }, int64(hour)),
		Entry("it was about to open", func(now int64) []any { return []any{other, hour, 0, now - 1} }, int64(hour)),
		Entry("the graces were shorter", func(int64) []any { return []any{other, minute, 0} }, int64(hour)),
		Entry("they were longer", func(int64) []any { return []any{other, 3 * hour, 0} }, int64(3*hour)),
		Entry("they were longer, and it was closed", func(now int64) []any { return []any{other, 3 * hour, 0, now + hour} }, int64(3*hour)),
	)

	It("closed: after a promotion, also if it is closed already", func(ctx SpecContext) {
		promote := func() {
			if on.identity != nil {
				on.identity.Begin()
				return
			}
			Expect(on.Client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err()).To(Succeed()) // nobody is there
			Expect(on.Client.Do(ctx, "REPLICAOF", "NO", "ONE").Err()).To(Succeed())
		}
		on.open(ctx)
		before := on.id(ctx)
		promote()
		Expect(on.id(ctx)).NotTo(Equal(before))
		closesAnew(ctx, hour)
		on.shut(ctx, minute)
		promote()
		closesAnew(ctx, hour)
	})

	DescribeTable("closed: the marker says nothing that a script has written", func(ctx SpecContext, words func(id string) string) {
		on.mark(ctx, words(on.id(ctx)))
		closesAnew(ctx, hour)
	},
		Entry("nothing", func(string) string { return "" }),
		Entry("only the id", func(id string) string { return id }),
		Entry("one number", func(id string) string { return id + " 3600000" }),
		Entry("a word in place of the grace", func(id string) string { return id + " soon 0" }),
		Entry("a negative grace", func(id string) string { return id + " -3600000 0" }),
		Entry("a word in place of deposed", func(id string) string { return id + " 3600000 soon" }),
		Entry("a time in place of deposed", func(id string) string { return id + " 3600000 1764151200000" }),
		Entry("nothing but deposed in the grace", func(id string) string { return id + " 3600000 3600000" }),
		Entry("a word in place of the time", func(id string) string { return id + " 3600000 0 soon" }),
		Entry("more words", func(id string) string { return id + " 3600000 0 1 1" }),
		Entry("more behind the numbers", func(id string) string { return id + " 3600000 0x" }),
		Entry("less than an id", func(id string) string { return id[:39] + " 3600000 0" }),
		Entry("more than an id", func(id string) string { return id + "0 3600000 0" }),
		Entry("nothing in place of the id", func(string) string { return strings.Repeat(" ", 41) + "3600000 0" }),
	)

	It("0 or closed: the graces of the marker stay longer", func(ctx SpecContext) {
		on.mark(ctx, on.id(ctx), 3*hour, 0)
		Expect(obtain(ctx)).To(Equal(int64(1)))
		Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", 3*hour, " 0")))
		on.mark(ctx, on.id(ctx), 3*hour, 0, on.now(ctx)+2*hour)
		before := on.marker(ctx)
		Expect(on.run(ctx, "obtain", "b lb", "t", "", minute)).To(HaveExactElements(int64(-2), left(2*hour), on.id(ctx)))
		Expect(on.marker(ctx)).To(Equal(before))
	})

	It("0: an open guard learns of longer graces, and stays open", func(ctx SpecContext) {
		on.mark(ctx, on.id(ctx), minute, 0)
		Expect(obtain(ctx)).To(Equal(int64(1)))
		Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", hour, " 0")))
	})

	It("closed: a closed guard learns of longer graces, and is closed for so much longer", func(ctx SpecContext) {
		opens := on.now(ctx) + 10*minute
		on.mark(ctx, on.id(ctx), 30*minute, 0, opens)
		Expect(obtain(ctx)).To(HaveExactElements(int64(-2), left(40*minute), on.id(ctx)))
		Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", hour, " 0 ", opens+30*minute)))
	})

	It("closed or 0: also if the shorter grace is over", func(ctx SpecContext) {
		now := on.now(ctx)
		on.mark(ctx, on.id(ctx), 30*minute, 0, now-10*minute)
		Expect(obtain(ctx)).To(HaveExactElements(int64(-2), left(20*minute), on.id(ctx)))
		Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", hour, " 0 ", now+20*minute)))
		on.mark(ctx, on.id(ctx), 30*minute, 0, now-30*minute)
		Expect(obtain(ctx)).To(Equal(int64(1)))
		Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", hour, " 0")))
	})

	It("closed: for one grace at most, after the clock was set back", func(ctx SpecContext) {
		on.mark(ctx, on.id(ctx), hour, 0, on.now(ctx)+2*hour)
		closesAnew(ctx, hour)
		on.mark(ctx, on.id(ctx), minute, 0, on.now(ctx)+2*hour)
		closesAnew(ctx, hour)
	})

	refreshes := func(ctx context.Context, grace string) (any, error) {
		return on.RunGuarded(ctx, "refresh", "a", grace, "t", hour, "", "1", "")
	}

	It("closed, id, early: renewals must not be executed in the first part of a closure", func(ctx SpecContext) {
		on.Set(ctx, "a", "t")
		const part = minute
		Expect(refreshes(ctx, deposed)).To(Equal(spec.List{none, int64(hour + part), on.id(ctx), int64(-part)}))
		Expect(on.marker(ctx)).To(marked(on.id(ctx), hour+part, part, BeNumerically(">", 0)))
		on.mark(ctx, on.id(ctx), hour+part, part, on.now(ctx)+hour)
		Expect(refreshes(ctx, deposed)).To(HaveExactElements(none, left(hour), on.id(ctx)))
	})

	// both returns the grace of our guard, with an hour and a minute, and of one with the same grace and their deposed: the
	// longest ttl and deposed are each the longer of the two.
	both := func(theirs int64) int64 { return max(hour, hour+minute-theirs) + max(theirs, minute) }

	It("0: the deposed of the marker stays longer, and an open guard learns of a longer one", func(ctx SpecContext) {
		on.Set(ctx, "a", "t")
		for _, theirs := range []int64{30 * minute, 1} {
			on.mark(ctx, on.id(ctx), hour+minute, theirs)
			for range 2 {
				Expect(refreshes(ctx, deposed)).To(Equal(none))
				Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", both(theirs), " ", max(theirs, minute))))
			}
		}
	})

	It("closed, id, early: the longer deposed counts, whichever of the two it is", func(ctx SpecContext) {
		on.Set(ctx, "a", "t")
		const grace = hour + minute
		for _, theirs := range []int64{30 * minute, 1} {
			opens := on.now(ctx) + grace - max(theirs, minute)/2
			on.mark(ctx, on.id(ctx), grace, theirs, opens)
			reply, err := refreshes(ctx, deposed)
			Expect(err).NotTo(HaveOccurred())
			Expect(reply).To(HaveExactElements(none, BeNumerically(">", 0), on.id(ctx), BeNumerically("<", 0)))
			closed, again := reply.(spec.List)[1].(int64), -reply.(spec.List)[3].(int64)
			Expect(closed - again).To(Equal(both(theirs) - max(theirs, minute)))
			opens += both(theirs) - grace
			Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", both(theirs), " ", max(theirs, minute), " ", opens)))
		}
	})

	It("closed, id, early: a new term has the longer deposed as well", func(ctx SpecContext) {
		for _, theirs := range []int64{30 * minute, 1} {
			on.mark(ctx, other, hour+minute, theirs)
			Expect(refreshes(ctx, deposed)).To(Equal(spec.List{none, both(theirs), on.id(ctx), -max(theirs, minute)}))
			Expect(on.marker(ctx)).To(marked(on.id(ctx), both(theirs), max(theirs, minute), BeNumerically(">", 0)))
		}
	})

	DescribeTable("WRONGTYPE: the marker is not a string, nothing written", func(ctx SpecContext, name, keys string, args ...any) {
		on.Client.RPush(ctx, keyname.GuardMarker, "x")
		on.Set(ctx, "mine", "t")
		before := on.Everything(ctx)
		_, err := on.run(ctx, name, keys, args...)
		Expect(err).To(MatchError(`WRONGTYPE guard marker "redislock:guard" is not a string`))
		Expect(on.Everything(ctx)).To(Equal(before))
	}, obeying)

	DescribeTable("READONLY: a replica, nothing written", func(ctx SpecContext, name, keys string, args ...any) {
		on.open(ctx)
		on.Set(ctx, "mine", "t")
		before := on.Everything(ctx)
		if on.identity != nil {
			on.identity.Follow(on.id(ctx))
		} else {
			Expect(on.Client.ConfigSet(ctx, "replica-read-only", "no").Err()).To(Succeed())
			DeferCleanup(func(ctx SpecContext) {
				Expect(on.Client.Do(ctx, "REPLICAOF", "NO", "ONE").Err()).To(Succeed())
				Expect(on.Client.ConfigSet(ctx, "replica-read-only", "yes").Err()).To(Succeed())
			})
			Expect(on.Client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err()).To(Succeed()) // nobody is there
			Expect(on.Client.Set(ctx, "writable", "x", time.Minute).Err()).To(Succeed())
			Expect(on.Client.Del(ctx, "writable").Err()).To(Succeed())
		}
		for range 2 {
			_, err := on.run(ctx, name, keys, args...)
			Expect(err).To(MatchError("READONLY a replica grants no locks"))
		}
		Expect(on.Everything(ctx)).To(Equal(before))
	}, obeying)
})

// other is an id of another term.
var other = strings.Repeat("0123456789", 4)

// obeying are entries for tables whose body runs a script that obeys the guard, for one key that it holds, and one that is
// free.
var obeying = []TableEntry{
	Entry("obtain", "obtain", "mine lm", "t", "", hour),
	Entry("obtain, of several keys", "obtain", "free mine fence", "t", "m", hour, 2, "1"),
	Entry("obtain, in line", "obtain", "free lf", "t", "", hour, 1, "0", "0", "box/1 1 60000 0 t", 0, "0", 3),
	Entry("obtain_each", "obtain_each", "free mine 1 2", "t", "", hour, "t", "", hour),
	Entry("refresh", "refresh", "mine", "t", hour, "", "0", ""),
	Entry("refresh, for a renewal", "refresh", "mine free", "t", hour, "", "1", "m"),
	Entry("inspect", "inspect", "mine free", 2, "1"),
}

// Clocks that change, and what only an in-memory Redis lacks.
var _ = spec.DescribeOn(spec.InMemory, "The contract, with a guard, of marker.lua", func(redis *spec.Redis) {
	on := &guarded{Redis: redis}

	It("closed: for one grace at most, after the clock was set back", func(ctx SpecContext) {
		on.identity = incarnation.Of(on.Memory)
		now := time.Now()
		on.Memory.SetTime(now)
		Expect(on.run(ctx, "obtain", "a la", "t", "", minute)).To(HaveExactElements(int64(-2), int64(hour), on.id(ctx)))
		on.Memory.SetTime(now.Add(-2 * time.Hour))
		Expect(on.run(ctx, "obtain", "a la", "t", "", minute)).To(HaveExactElements(int64(-2), int64(hour), on.id(ctx)))
		on.Memory.SetTime(now.Add(-time.Hour - time.Millisecond))
		Expect(on.run(ctx, "obtain", "a la", "t", "", minute)).To(HaveExactElements(int64(-2), int64(1), on.id(ctx)))
		on.Memory.SetTime(now.Add(-time.Hour))
		Expect(on.run(ctx, "obtain", "a la", "t", "", minute)).To(Equal(int64(1)))
	})

	DescribeTable("ERR: the server does not say who it is, nothing written", func(ctx SpecContext, name, keys string, args ...any) {
		on.Set(ctx, "mine", "t")
		before := on.Everything(ctx)
		_, err := on.run(ctx, name, keys, args...)
		Expect(err).To(MatchError(ContainSubstring("section (replication) is not supported")))
		incarnation.Of(on.Memory).Become("master", "")
		_, err = on.run(ctx, name, keys, args...)
		Expect(err).To(MatchError("ERR INFO replication does not have the master_replid that a guard needs"))
		Expect(on.Everything(ctx)).To(Equal(before))
	}, obeying)
})
