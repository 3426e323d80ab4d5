package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/internal/redistest"

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

	DescribeTable("refuses what is no address, without repeating any of it",
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
		Entry("an option that there is not", "redis://:secret@host?frob=1"),
		Entry("a database that is no number", "redis://:secret@host/secret"),
	)
})

// authority signs certificates.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority() *authority {
	GinkgoHelper()
	a := &authority{dir: GinkgoT().TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.file, _ = a.sign("ca", a.cert)
	return a
}

// sign returns the files of a certificate and its key.
func (a *authority) sign(name string, template *x509.Certificate) (cert, key string) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	if a.key == nil {
		a.key = private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	write := func(suffix, kind string, der []byte) string {
		path := filepath.Join(a.dir, name+suffix)
		Expect(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)).To(Succeed())
		return path
	}
	return write(".crt", "CERTIFICATE", der), write(".key", "PRIVATE KEY", keyDER)
}

// issue signs the certificate of a server or client.
func (a *authority) issue(name string, until time.Time, hosts ...string) (cert, key string) {
	GinkgoHelper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(name, template)
}

// newSecureServer starts a redis-server that speaks TLS with that certificate, and returns the address where it does.
func newSecureServer(a *authority, cert, key string, config ...string) (addr string, server *redistest.Server) {
	GinkgoHelper()
	clitest.NeedServer()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	addr = listener.Addr().String()
	Expect(listener.Close()).To(Succeed())
	_, port, _ := net.SplitHostPort(addr)
	config = append([]string{
		"tls-port " + port, "tls-cert-file " + cert, "tls-key-file " + key, "tls-ca-cert-file " + a.file, "tls-auth-clients no",
	}, config...)
	server, err = redistest.Start(config...)
	if err != nil && strings.Contains(err.Error(), "tls-port") {
		Skip("this redis-server is built without TLS")
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	return addr, server
}

// refuses expects the program to end with 69 and one line that says these words, and no password.
func refuses(session *gexec.Session, words string) {
	GinkgoHelper()
	Expect(session).To(gexec.Exit(cli.Unavailable), clitest.Stderr(session))
	Expect(clitest.Stdout(session)).To(BeEmpty())
	Expect(clitest.Stderr(session)).To(And(HavePrefix("redislock: cannot use the Redis at "), ContainSubstring(words)))
	Expect(strings.Count(clitest.Stderr(session), "\n")).To(Equal(1), clitest.Stderr(session))
	Expect(clitest.Stderr(session)).NotTo(ContainSubstring("secret"))
}

var _ = Describe("connecting over TLS", func() {
	var a *authority
	tomorrow := time.Now().Add(24 * time.Hour)

	BeforeEach(func() { a = newAuthority() })

	It("trusts the authority of --tls-ca, and no other", func() {
		cert, key := a.issue("server", tomorrow, "127.0.0.1")
		addr, _ := newSecureServer(a, cert, key)
		session := clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		refuses(clitest.Run("rediss://"+addr, "ls"), "name the file of its CA with --tls-ca")
		refuses(clitest.Run("rediss://"+addr, "ls", "--tls-ca", newAuthority().file), "--tls-ca")
		Expect(clitest.Run("rediss://"+addr+"?skip_verify=true", "ls")).To(gexec.Exit(0))
	})

	It("shows the certificate of --tls-cert where one is wanted", func() {
		cert, key := a.issue("server", tomorrow, "127.0.0.1")
		addr, _ := newSecureServer(a, cert, key, "tls-auth-clients yes")
		own, ownKey := a.issue("client", tomorrow)
		session := clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file, "--tls-cert", own, "--tls-key", ownKey)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		refuses(clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file), "--tls-cert and --tls-key")
		other, otherKey := newAuthority().issue("client", tomorrow) // of the same name as the server's
		refuses(clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file, "--tls-cert", other, "--tls-key", otherKey),
			"that its own CA vouches for")
	})

	It("wants the name in the address to be proven, or server_name", func() {
		cert, key := a.issue("server", tomorrow, "redis.example")
		addr, _ := newSecureServer(a, cert, key)
		refuses(clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file), "?server_name=NAME")
		session := clitest.Run("rediss://"+addr+"?server_name=redis.example", "ls", "--tls-ca", a.file)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
	})

	It("says when a certificate has run out", func() {
		cert, key := a.issue("server", time.Now().Add(-time.Hour), "127.0.0.1")
		addr, _ := newSecureServer(a, cert, key)
		refuses(clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file), "renew it")
	})

	It("says when only one side speaks TLS", func() {
		cert, key := a.issue("server", tomorrow, "127.0.0.1")
		addr, server := newSecureServer(a, cert, key)
		refuses(clitest.Run("redis://:secret@"+addr, "ls"), "TLS")
		refuses(clitest.Run("rediss://:secret@"+server.Addr(), "ls", "--tls-ca", a.file), "TLS")
	})

	DescribeTable("refuses files that it cannot use",
		func(url, words string, flags ...string) {
			cert, key := a.issue("client", tomorrow)
			for i := range flags {
				flags[i] = strings.NewReplacer("CA", a.file, "CERT", cert, "KEY", key).Replace(flags[i])
			}
			session := clitest.Run(url, append([]string{"ls"}, flags...)...)
			Expect(session).To(gexec.Exit(cli.Usage))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
			Expect(strings.Count(clitest.Stderr(session), "\n")).To(Equal(1))
		},
		Entry("none", "rediss://host", "no such file", "--tls-ca", "/nowhere/ca"),
		Entry("without a certificate", "rediss://host", "there is no certificate in", "--tls-ca", "KEY"),
		Entry("a certificate without its key", "rediss://host", "--tls-cert needs --tls-key", "--tls-cert", "CERT"),
		Entry("a key without its certificate", "rediss://host", "--tls-key needs --tls-cert", "--tls-key", "KEY"),
		Entry("the two mixed up", "rediss://host", "--tls-cert and --tls-key: ", "--tls-cert", "KEY", "--tls-key", "CERT"),
		Entry("no TLS at all", "redis://host", "write rediss://", "--tls-ca", "CA"),
	)
})

var _ = Describe("connecting", func() {
	It("goes through a socket", func() {
		path := filepath.Join(GinkgoT().TempDir(), "s")
		clitest.NewServer("unixsocket "+path, "unixsocketperm 700")
		session := clitest.Run("unix://"+path, "ls")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		refuses(clitest.Run("unix://"+path+".not", "ls"), "no such socket")
	})

	It("takes --redis before REDIS_URL", func() {
		server, _ := clitest.NewServer()
		session := clitest.Run("redis://127.0.0.1:1", "ls", "--redis", "redis://"+server.Addr())
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
	})

	It("locks nothing anywhere else if --redis is empty", func() {
		server, _ := clitest.NewServer()
		session := clitest.Run("redis://"+server.Addr(), "run", "--redis", "", "-k", "a", "--", "echo", "ran")
		Expect(session).To(gexec.Exit(64))
		Expect(clitest.Stderr(session)).To(Equal("redislock: --redis is empty; is a variable unset?\n"))
		Expect(clitest.Stdout(session)).To(BeEmpty())
	})

	It("finds the master through Sentinels, of which one is enough", func(ctx SpecContext) {
		clitest.NeedServer()
		sentinel, err := redistest.StartSentinel()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sentinel.Close)
		hosts := "127.0.0.1:1," + strings.Join(sentinel.Addrs(), ",")
		session := clitest.Run("redis+sentinel://"+hosts+"/"+sentinel.MasterName(), "doctor")
		Expect(clitest.Stdout(session)).To(MatchRegexp(`ok +role +a master`))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`warn +replicas +1`))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`ok +locking`))
		refuses(clitest.Run("redis+sentinel://"+hosts+"/other", "ls"), "know no master of that name")
		refuses(clitest.Run("redis://"+sentinel.Addrs()[0], "ls"), "it is a Sentinel; write redis+sentinel://")
		refuses(clitest.Run("redis+sentinel://"+sentinel.Master().Addr()+"/m", "ls"), "is no Sentinel")
		refuses(clitest.Run("redis+sentinel://127.0.0.1:1/m", "ls"), "no Sentinel can be asked: the connection is refused")
	})

	It("says what is wrong with user and password", func(ctx SpecContext) {
		server, _ := clitest.NewServer("requirepass secret1")
		refuses(clitest.Run("redis://"+server.Addr(), "ls"), "it wants a password")
		refuses(clitest.Run("redis://:secret2@"+server.Addr(), "ls"), "user or password is wrong")
		refuses(clitest.Run("redis://nobody:secret1@"+server.Addr(), "ls"), "user or password is wrong")
		Expect(clitest.Run("redis://:secret1@"+server.Addr(), "ls")).To(gexec.Exit(0))
	})

	It("says that a server is no Cluster, and has no such database", func() {
		server, _ := clitest.NewServer()
		refuses(clitest.Run("redis+cluster://"+server.Addr(), "ls"), "it is no Cluster")
		refuses(clitest.Run("redis://"+server.Addr()+"/99", "ls"), "no database of that number")
	})

	It("says at once that nobody is there", func() {
		began := time.Now()
		refuses(clitest.Run("redis://:secret@127.0.0.1:1", "ls"), "127.0.0.1:1: the connection is refused")
		refuses(clitest.Run("redis+cluster://:secret@127.0.0.1:1", "ls"), "the connection is refused")
		refuses(clitest.Run("redis://host.invalid", "ls"), `no host "host.invalid"`)
		Expect(time.Since(began)).To(BeNumerically("<", connectLimit))
	})

	It("does not wait longer than 3 s for a server that hangs", func() {
		server, _ := clitest.NewServer()
		Expect(server.Pause()).To(Succeed())
		began := time.Now()
		refuses(clitest.Run("redis://"+server.Addr(), "ls"), fmt.Sprintf("no answer within %v", connectLimit))
		Expect(time.Since(began)).To(BeNumerically("<", connectLimit+2*time.Second))
	})

	It("says that something else answers", func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
				conn.Close()
			}
		}()
		refuses(clitest.Run("redis://"+listener.Addr().String(), "ls"), "is the port right?")
	})
})
