package redislock_test

import (
	"encoding/json"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
)

var _ = Describe("ProcessMetadata", func() {
	It("describes this process, now, on one line of JSON", func() {
		text := redislock.ProcessMetadata()
		Expect(text).NotTo(ContainSubstring("\n"))
		var info struct {
			Host, Program string
			PID           int
			Started, Now  time.Time
		}
		Expect(json.Unmarshal([]byte(text), &info)).To(Succeed())
		host, err := os.Hostname()
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Host).To(Equal(host))
		Expect(info.PID).To(Equal(os.Getpid()))
		Expect(info.Program).NotTo(BeEmpty())
		Expect(info.Now).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(info.Started).To(BeTemporally("<=", info.Now))
	})

	It("tells the time of each call", func() {
		before := redislock.ProcessMetadata()
		Eventually(redislock.ProcessMetadata).ShouldNot(Equal(before))
	})
})
