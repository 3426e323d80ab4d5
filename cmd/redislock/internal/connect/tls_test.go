package connect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

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

// copyFile puts the content of one file into another, in one step.
func copyFile(from, to string) {
	GinkgoHelper()
	text, err := os.ReadFile(from)
	Expect(err).NotTo(HaveOccurred())
	clitest.ReplaceFile(to, string(text))
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

	It("takes the files from variables as well", func() {
		cert, key := a.issue("server", tomorrow, "127.0.0.1")
		addr, _ := newSecureServer(a, cert, key, "tls-auth-clients yes")
		own, ownKey := a.issue("client", tomorrow)
		run := func(url string, variables ...string) *gexec.Session {
			GinkgoHelper()
			session := clitest.Start(clitest.Command(append(variables, "REDIS_URL="+url), "ls"))
			Eventually(session, "10s").Should(gexec.Exit())
			return session
		}
		session := run("rediss://"+addr, "REDISLOCK_TLS_CA="+a.file, "REDISLOCK_TLS_CERT="+own, "REDISLOCK_TLS_KEY="+ownKey)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		session = run("redis://"+addr, "REDISLOCK_TLS_CA="+a.file)
		Expect(session).To(gexec.Exit(cli.Usage))
		Expect(clitest.Stderr(session)).To(HavePrefix("redislock: REDISLOCK_TLS_CA is set, but the address is one without TLS; write rediss://"))
		session = run("rediss://"+addr, "REDISLOCK_TLS_CERT="+own)
		Expect(clitest.Stderr(session)).To(HavePrefix("redislock: REDISLOCK_TLS_CERT needs --tls-key"))
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
			"that its own CA has signed")
	})

	It("wants the name in the address to be proven, or server_name", func() {
		cert, key := a.issue("server", tomorrow, "redis.example")
		addr, _ := newSecureServer(a, cert, key)
		refuses(clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file),
			"its certificate is for redis.example, not for 127.0.0.1; use that name in the URL, or add ?server_name=NAME")
		session := clitest.Run("rediss://"+addr+"?server_name=redis.example", "ls", "--tls-ca", a.file)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
	})

	It("says that a certificate has nothing but a Common Name, as many that people make themselves", func() {
		cert, key := a.issue("127.0.0.1", tomorrow)
		addr, _ := newSecureServer(a, cert, key)
		refuses(clitest.Run("rediss://"+addr, "ls", "--tls-ca", a.file), "-addext subjectAltName=DNS:NAME,IP:ADDRESS")
		refuses(clitest.Run("rediss://"+addr+"?server_name=redis.example", "ls", "--tls-ca", a.file), "no subjectAltName")
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

	It("uses what the files say when a connection is made", func(ctx SpecContext) {
		b := newAuthority()
		serverCert, serverKey := a.issue("server", tomorrow, "127.0.0.1")
		addr, server := newSecureServer(a, serverCert, serverKey, "tls-auth-clients yes")
		admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
		DeferCleanup(admin.Close)
		dir := GinkgoT().TempDir()
		ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		own, ownKey := a.issue("client", tomorrow)
		copyFile(a.file, ca)
		copyFile(own, cert)
		copyFile(ownKey, key)
		session := clitest.Begin("rediss://"+addr, "ls", "--all", "--watch=100ms", "-o", "name",
			"--tls-ca", ca, "--tls-cert", cert, "--tls-key", key)
		lists := func(name string) {
			GinkgoHelper()
			clitest.Hold(admin, "", name)
			Eventually(session.Out.Contents).Should(ContainSubstring(name + "\n"))
		}
		disconnect := func() {
			GinkgoHelper()
			Expect(admin.Do(ctx, "client", "kill", "type", "normal", "skipme", "yes").Err()).To(Succeed())
		}
		lists("before")

		By("half-written: the key is still that of the old certificate")
		own, ownKey = b.issue("client", tomorrow)
		copyFile(own, cert)
		disconnect()
		lists("half-1")
		disconnect()
		lists("half-2")

		By("all of it new, on both sides")
		next, nextKey := b.issue("server", tomorrow, "127.0.0.1")
		copyFile(next, serverCert)
		copyFile(nextKey, serverKey)
		copyFile(b.file, ca)
		copyFile(ownKey, key)
		copyFile(b.file, a.file)
		Expect(admin.ConfigSet(ctx, "tls-cert-file", serverCert).Err()).To(Succeed()) // loads all files
		disconnect()
		lists("after")
		Eventually(session.Interrupt()).Should(gexec.Exit(130))
		Expect(clitest.Stderr(session)).To(Equal("redislock: --tls-cert and --tls-key: tls: private key does not match public key; " +
			"new connections use what was read before\n"))
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
