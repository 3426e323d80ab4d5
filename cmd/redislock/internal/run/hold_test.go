package run

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("the end of a run", func() {
	DescribeTable("waits for Redis while the locks are held, within limits",
		func(left, limit time.Duration) { Expect(releaseTime(left)).To(Equal(limit)) },
		Entry("nothing left", -time.Second, time.Second),
		Entry("two seconds", 2*time.Second, 2*time.Second),
		Entry("a long ttl", time.Minute, 3*time.Second),
	)
})
