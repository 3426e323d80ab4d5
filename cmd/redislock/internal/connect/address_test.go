package connect

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("parseAddress", func() {
	It("reads one server", func() {
		a, err := parseAddress("redis://user:p%40ss@host:7/3?read_timeout=2s")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("host:7"))
		Expect(a.Username).To(Equal("user"))
		Expect(a.Password).To(Equal("p@ss"))
		Expect(a.DB).To(Equal(3))
		Expect(a.ReadTimeout).To(Equal(2 * time.Second))
		Expect(a.TLSConfig).To(BeNil())
	})

	It("reads a socket", func() {
		a, err := parseAddress("unix://:pw@/run/redis.sock?db=2")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("/run/redis.sock"))
		Expect(a.Network).To(Equal("unix"))
		Expect(a.Password).To(Equal("pw"))
		Expect(a.DB).To(Equal(2))
	})

	It("reads Sentinels, with user and password for the servers", func() {
		a, err := parseAddress("rediss+sentinel://u:p%2F@s1,s2:7,[::1]/my%20master/4?sentinel_password=x%40&server_name=n&" +
			"replica_only=true")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("sentinel s1:26379,s2:7,[::1]:26379 for my master"))
		Expect(a.serverName).To(Equal("n"))
		Expect(a.hosts).To(Equal([]string{"s1:26379", "s2:7", "[::1]:26379"}))
		Expect([]string{a.master, a.sentinelUser, a.sentinelPassword}).To(Equal([]string{"my master", "", "x@"}))
		Expect(a.failover.ReplicaOnly).To(BeTrue())
		client := a.client(a.Options).(*redis.Client)
		DeferCleanup(client.Close)
		o := client.Options()
		Expect([]string{o.Username, o.Password}).To(Equal([]string{"u", "p/"}))
		Expect(o.DB).To(Equal(4))
		Expect(o.TLSConfig).NotTo(BeNil())
	})

	It("reads a Cluster", func() {
		a, err := parseAddress("rediss+cluster://u:p@h1:7000,h2?skip_verify=true&pool_size=7&max_redirects=9&" +
			"route_by_latency=true&route_by_latency_tolerance=2ms&read_only=1")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.where).To(Equal("cluster h1:7000,h2:6379"))
		client := a.client(a.Options).(*redis.ClusterClient)
		DeferCleanup(client.Close)
		o := client.Options()
		Expect(o.Addrs).To(ConsistOf("h1:7000", "h2:6379"))
		Expect(o.Username + o.Password).To(Equal("up"))
		Expect(o.PoolSize).To(Equal(7))
		Expect(o.MaxRedirects).To(Equal(9))
		Expect(o.RouteByLatency && o.ReadOnly).To(BeTrue())
		Expect(o.RouteByLatencyTolerance).To(Equal(2 * time.Millisecond))
		Expect(o.TLSConfig.InsecureSkipVerify).To(BeTrue())
	})

	DescribeTable("says which part of an address is wrong, with an example, and repeats none of it",
		func(text, words string) {
			_, err := parseAddress(text)
			Expect(err).To(HaveOccurred())
			session := clitest.Run(text, "ls")
			Expect(session).To(gexec.Exit(cli.Usage))
			Expect(clitest.Stderr(session)).To(MatchRegexp(
				`^redislock: REDIS_URL cannot be read: .*; write it like .*://.*; see "redislock help addresses"\n$`))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
			Expect(clitest.Stderr(session)).NotTo(ContainSubstring("secret"))
		},
		Entry(nil, "host:6379", "not begin with a scheme"),
		Entry(nil, "secret", "not begin with a scheme"),
		Entry(nil, "redis:/host:6379", "not begin with a scheme like redis://"),
		Entry(nil, "http://:secret@host", "scheme is none of redis, rediss"),
		Entry(nil, "redis+ring://:secret@host", "scheme is none of"),
		Entry(nil, "unix+cluster:///secret", "scheme is none of"),
		Entry(nil, "redis://user:1/secret@host", "an @ behind a /"),
		Entry(nil, "redis://:a?secret@host", "the port is not a number"),
		Entry(nil, "redis://:1?secret@host", "a host is missing"),
		Entry(nil, "redis://a:1?secret@host", "an @ behind a ?"),
		Entry(nil, "redis://:se%cret@host", "not percent-encoded"),
		Entry(nil, "redis://:sec#ret@host", "a #"),
		Entry(nil, "redis://:secret@host:port", "the port is not a number"),
		Entry(nil, "redis://:secret@host:", "the port is not a number"),
		Entry(nil, "redis://:secret@host:0", "from 1 to 65535"),
		Entry(nil, "redis://:secret@host:65536", "from 1 to 65535"),
		Entry(nil, "redis://", "a host is missing"),
		Entry(nil, "redis://:6379/0", "is a variable unset?"),
		Entry(nil, "redis://:secret@", "a host is missing"),
		Entry(nil, "redis://host name:6379", "not a name or an address"),
		Entry(nil, "redis://[::1:6379", "not a name or an address"),
		Entry(nil, "redis://a:1,b:2", "several hosts"),
		Entry(nil, "redis://:secret@host/secret", "the database behind the host is not a number"),
		Entry(nil, "redis://:secret@host/-1", "the database"),
		Entry(nil, "redis://:secret@host/0/1", "the database"),
		Entry(nil, "redis://:secret@host?frob=1", "the option frob is not known"),
		Entry(nil, "redis://:secret@host?dial_timeout=soon", "the value of dial_timeout is not a duration"),
		Entry(nil, "redis://:secret@host?pool_size=many", "pool_size=3"),
		Entry(nil, "redis://:secret@host?a=%zz", "the options after the ?"),
		Entry(nil, "unix://", "no path"),
		Entry(nil, "unix://run/redis.sock", "unix:///run/redis.sock"),
		Entry(nil, "unix:///run/redis.sock?db=x", "the value of db"),
		Entry(nil, "redis+sentinel://:secret@host", "the name of the master"),
		Entry(nil, "redis+sentinel://:secret@host/m/1/2", "the database"),
		Entry(nil, "redis+sentinel://:secret@host:x/m", "the port"),
		Entry(nil, "redis+cluster://:secret@host/3", "only one"),
		Entry(nil, "redis+cluster://:secret@host,", "a host is missing"),
		Entry(nil, "redis+cluster://:secret@host?frob=1", "the option frob"),
		Entry(nil, "redis+cluster://:secret@host?max_redirects=secret", "max_redirects=3"),
		Entry(nil, "redis+sentinel://:secret@host/m?replica_only=secret", "replica_only=true"),
		Entry(nil, "redis+sentinel://:secret@host/m?route_randomly=true", "the option route_randomly is not known"),
		Entry(nil, "redis://:secret@host?max_redirects=9", "the option max_redirects is not known"),
	)
})
