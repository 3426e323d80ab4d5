package connect

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("parseAddress", func() {
	It("reads one server", func() {
		a, err := parseAddress("redis://user:p%40ss@host:7/3?read_timeout=2s")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("host:7"))
		Expect(a.single.Username).To(Equal("user"))
		Expect(a.single.Password).To(Equal("p@ss"))
		Expect(a.single.DB).To(Equal(3))
		Expect(a.single.ReadTimeout).To(Equal(2 * time.Second))
		Expect(a.single.TLSConfig).To(BeNil())
	})

	It("reads a socket", func() {
		a, err := parseAddress("unix://:pw@/run/redis.sock?db=2")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("/run/redis.sock"))
		Expect(a.single.Network).To(Equal("unix"))
		Expect(a.single.Password).To(Equal("pw"))
		Expect(a.single.DB).To(Equal(2))
	})

	It("reads Sentinels, with user and password for the servers", func() {
		a, err := parseAddress("rediss+sentinel://u:p%2F@s1,s2:7,[::1]/my%20master/4?sentinel_password=x%40&server_name=n")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("sentinel s1:26379,s2:7,[::1]:26379 for my master"))
		Expect(a.serverName).To(Equal("n"))
		o := a.sentinel
		Expect(o.SentinelAddrs).To(Equal([]string{"s1:26379", "s2:7", "[::1]:26379"}))
		Expect([]string{o.MasterName, o.Username, o.Password, o.SentinelUsername, o.SentinelPassword}).
			To(Equal([]string{"my master", "u", "p/", "", "x@"}))
		Expect(o.DB).To(Equal(4))
		Expect(o.TLSConfig).NotTo(BeNil())
	})

	It("reads a Cluster", func() {
		a, err := parseAddress("rediss+cluster://u:p@h1:7000,h2?skip_verify=true")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("cluster h1:7000,h2:6379"))
		Expect(a.cluster.Addrs).To(Equal([]string{"h1:7000", "h2:6379"}))
		Expect(a.cluster.Username + a.cluster.Password).To(Equal("up"))
		Expect(a.cluster.TLSConfig.InsecureSkipVerify).To(BeTrue())
	})

	DescribeTable("refuses what is not an address, without repeating any of it",
		func(text string) {
			_, err := parseAddress(text)
			Expect(err).To(HaveOccurred())
			session := clitest.Run(text, "ls")
			Expect(session).To(gexec.Exit(cli.Usage))
			Expect(clitest.Stderr(session)).To(HavePrefix("redislock: REDIS_URL cannot be read; write it like redis://"))
			Expect(clitest.Stderr(session)).NotTo(ContainSubstring("secret"))
			Expect(strings.Count(clitest.Stderr(session), "\n")).To(Equal(1))
		},
		Entry("no scheme", "host:6379"),
		Entry("another scheme", "http://:secret@host"),
		Entry("another kind", "redis+ring://:secret@host"),
		Entry("a password that is not escaped", "redis://user:1/secret@host"),
		Entry("one with a question mark", "redis://:a?secret@host"),
		Entry("one with a percent sign", "redis://:se%cret@host"),
		Entry("a socket without a path", "unix://"),
		Entry("unix with a kind", "unix+cluster:///secret"),
		Entry("Sentinels without a master", "redis+sentinel://:secret@host"),
		Entry("Sentinels with too much", "redis+sentinel://:secret@host/m/1/2"),
		Entry("a Cluster with a database", "redis+cluster://:secret@host/3"),
		Entry("a Cluster with an empty host", "redis+cluster://:secret@host,"),
		Entry("an unknown option", "redis://:secret@host?frob=1"),
		Entry("a database that is not a number", "redis://:secret@host/secret"),
	)
})
