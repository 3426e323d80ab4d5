package several_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = describeSchedules("the metadata of a Refresh", func(on *schedule) {
	meta := func(metadata string) *redislock.Options { return &redislock.Options{Metadata: metadata} }
	late := faultproxy.DelayRequest(50 * time.Millisecond)

	DescribeTable("is on a server that answers the obtain after it", func(ctx SpecContext, obtain, mend faultproxy.Action) {
		on.Break(2, ours("obtain", 1, obtain), ours("obtain", 1, mend))
		lock := spec.Obtain(ctx, on.Locks, time.Minute, meta("one"), "a")
		Expect(lock.Refresh(ctx, 10*time.Second, meta("two"))).To(Succeed()) // begins the mend
		on.at(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token()+" two")))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	},
		Entry("and has executed the mend first", late, passes),
		Entry("and has executed the mend first, and answers that last", late, faultproxy.DelayReply(100*time.Millisecond)),
		Entry("and has executed the obtain first", faultproxy.DelayReply(50*time.Millisecond), passes),
		Entry("and gets no mend", late, faultproxy.CutClient()),
	)

	It("is on a server that answers the obtain too late to count, after the next Refresh", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(1200*time.Millisecond)))
		lock := spec.Obtain(ctx, locks, time.Second, meta("one"), "a")
		Expect(lock.Refresh(ctx, time.Minute, meta("two"))).To(Succeed())
		on.at(time.Second)
		Expect(lock.Refresh(ctx, time.Minute, meta("three"))).To(Succeed())
		on.at(3 * time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token()+" three")))
		Expect(lock.Release(ctx)).To(Succeed())
	})
})
