package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("Inspect", func(on *spec.Quorum) {
	It("shows who holds and who waits", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "me"}, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" me")))
		waiting, giveUp := context.WithCancel(ctx)
		gone := make(chan error)
		go func() {
			_, err := on.Locks.Obtain(waiting, "a", time.Minute, &redislock.Options{Queue: true, Metadata: "next"})
			gone <- err
		}()
		Eventually(func() []redislock.Waiter { line, _ := on.Locks.Line(ctx, "a"); return line }).Should(HaveLen(1))
		line, err := on.Locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(line[0].Metadata).To(Equal("next"))
		Expect(line[0].Process).To(MatchRegexp(`^[\w-]{22}$`), "the same on all servers")
		statuses, err := on.Locks.Inspect(ctx, "a", "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].WaitingSince).To(BeTemporally("~", time.Now(), 5*time.Second))
		Expect(statuses[0].TTL).To(BeNumerically("~", time.Minute, time.Second))
		statuses[0].WaitingSince, statuses[0].TTL = time.Time{}, 0
		Expect(statuses).To(Equal([]redislock.Status{
			{Key: "a", Token: lock.Token(), Metadata: "me", Waiters: 1, Line: line}, {Key: "b"},
		}))
		giveUp()
		Eventually(gone).Should(Receive(MatchError(context.Canceled)))
		Eventually(func() []redislock.Waiter { line, _ := on.Locks.Line(ctx, "a"); return line }).Should(BeEmpty())
	})

	It("shows the metadata that most servers have", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "new"}, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" new")))
		Expect(on.Servers[0].Own.Set(ctx, "a", lock.Token()+" old", time.Hour).Err()).To(Succeed()) // as a late mend does
		statuses, err := on.Locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].Metadata).To(Equal("new"))
		attached, err := on.Locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Metadata()).To(Equal("new"))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("shows where the servers disagree", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		Expect(on.Servers[1].Own.Del(ctx, "a").Err()).To(Succeed())
		statuses, err := on.Locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].Token).To(Equal(lock.Token()))
		Expect(statuses[0].Places).To(HaveLen(len(on.Servers)))
		Expect(statuses[0].Places[1]).To(Equal(redislock.PlaceStatus{Server: on.Servers[1].Name}))
		Expect(statuses[0].Places[0].Token).To(Equal(lock.Token()))
	})
})
