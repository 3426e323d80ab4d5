package connect

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/bubble"
)

var _ = Describe("a secret", func() {
	var (
		dir, path string
		warnings  []string
	)

	BeforeEach(func() {
		dir, warnings = GinkgoT().TempDir(), nil
		path = filepath.Join(dir, "file")
	})
	warn := func(err error) { warnings = append(warnings, err.Error()) }
	password := func() *secret[string] {
		GinkgoHelper()
		clitest.ReplaceFile(path, "first\n")
		s, err := newSecret("--password-file", passwordIn(path), warn)
		Expect(err).NotTo(HaveOccurred())
		return s
	}

	It("is what the file says when a connection is made", func() {
		s := password()
		Expect(s.current()).To(Equal("first"))
		clitest.ReplaceFile(path, "second")
		Expect(s.current()).To(Equal("second"))
		Expect(warnings).To(BeEmpty())
	})

	It("is behind a symbolic link, which Kubernetes replaces", func() {
		for _, version := range []string{"v1", "v2"} {
			Expect(os.Mkdir(filepath.Join(dir, version), 0o700)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir, version, "password"), []byte(version), 0o600)).To(Succeed())
		}
		data := filepath.Join(dir, "..data")
		Expect(os.Symlink("v1", data)).To(Succeed())
		Expect(os.Symlink(filepath.Join("..data", "password"), filepath.Join(dir, "password"))).To(Succeed())
		s, err := newSecret("--password-file", passwordIn(filepath.Join(dir, "password")), warn)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink("v2", data+"_tmp")).To(Succeed())
		Expect(os.Rename(data+"_tmp", data)).To(Succeed())
		Expect(os.RemoveAll(filepath.Join(dir, "v1"))).To(Succeed())
		Expect(s.current()).To(Equal("v2"))
	})

	DescribeTable("stays as it was while its file cannot be used, with one warning each time that this begins",
		func(spoil func(), words string) {
			s := password()
			for episode := 1; episode <= 2; episode++ {
				spoil()
				for range 3 {
					Expect(s.current()).To(Equal("first"))
				}
				Expect(warnings).To(HaveLen(episode))
				Expect(warnings[episode-1]).To(And(HavePrefix("--password-file: "), ContainSubstring(words),
					HaveSuffix("; new connections use what was read before")))
				Expect(os.RemoveAll(path)).To(Succeed())
				clitest.ReplaceFile(path, "first")
				Expect(s.current()).To(Equal("first"))
			}
			clitest.ReplaceFile(path, "second")
			Expect(s.current()).To(Equal("second"))
			Expect(warnings).To(HaveLen(2))
		},
		Entry("it is empty", func() { Expect(os.Truncate(path, 0)).To(Succeed()) }, "there is no password in "),
		Entry("it is gone", func() { Expect(os.Remove(path)).To(Succeed()) }, "no such file"),
		Entry("it is a directory", func() {
			Expect(os.Remove(path)).To(Succeed())
			Expect(os.Mkdir(path, 0o700)).To(Succeed())
		}, "is no longer a regular file"),
	)

	It("stays as it was while PEM files are half-written", func() {
		first, second := newAuthority(), newAuthority()
		text := func(path string) string {
			GinkgoHelper()
			text, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			return string(text)
		}
		poolOf := func(authorities ...*authority) *x509.CertPool {
			pool := x509.NewCertPool()
			for _, a := range authorities {
				pool.AddCert(a.cert)
			}
			return pool
		}
		old, added := text(first.file), text(second.file)
		for _, a := range []*authority{first, second} { // with all of its fields
			der, err := os.ReadFile(a.file)
			Expect(err).NotTo(HaveOccurred())
			a.cert = parsed(der)
		}
		clitest.ReplaceFile(path, old)
		s, err := newSecret("--tls-ca", rootsIn(path), warn)
		Expect(err).NotTo(HaveOccurred())
		for _, half := range []string{"", "no PEM", added + old[:len(old)/2], added + old[:len(old)-2]} {
			clitest.ReplaceFile(path, half)
			Expect(s.current().Equal(poolOf(first))).To(BeTrue(), half)
		}
		Expect(warnings).To(ConsistOf(ContainSubstring("--tls-ca: there is no certificate in " + path)))
		clitest.ReplaceFile(path, added+old)
		Expect(s.current().Equal(poolOf(first, second))).To(BeTrue())
		clitest.ReplaceFile(path, old[:len(old)/2])
		Expect(s.current().Equal(poolOf(first, second))).To(BeTrue())
		Expect(warnings).To(HaveLen(2))
		Expect(warnings[1]).To(ContainSubstring("half-written"))
	})

	It("may have an incomplete block from the start", func() {
		text, err := os.ReadFile(newAuthority().file)
		Expect(err).NotTo(HaveOccurred())
		clitest.ReplaceFile(path, string(text)+"-----BEGIN NOTHING")
		s, err := newSecret("--tls-ca", rootsIn(path), warn)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.current()).NotTo(BeNil())
		Expect(warnings).To(BeEmpty())
	})

	It("stays as it was while only one of certificate and key is replaced", func() {
		a, tomorrow := newAuthority(), time.Now().Add(24*time.Hour)
		cert, key := a.issue("client", tomorrow)
		s, err := newSecret("--tls-cert and --tls-key", pairIn(cert, key), warn)
		Expect(err).NotTo(HaveOccurred())
		first := s.current().Certificate
		nextCert, nextKey := a.issue("next", tomorrow)
		Expect(os.Rename(nextCert, cert)).To(Succeed())
		for range 2 {
			Expect(s.current().Certificate).To(Equal(first))
		}
		Expect(warnings).To(ConsistOf("--tls-cert and --tls-key: tls: private key does not match public key; " +
			"new connections use what was read before"))
		Expect(os.Rename(nextKey, key)).To(Succeed())
		Expect(s.current().Certificate).NotTo(Equal(first))
		Expect(warnings).To(HaveLen(1))
	})

	It("may be asked for by many connections at the same time", func() {
		s := password()
		var connections sync.WaitGroup
		for range 8 {
			connections.Go(func() {
				for range 50 {
					_ = s.current()
				}
			})
		}
		for _, text := range []string{"", "second", "", "third"} {
			clitest.ReplaceFile(path, text)
		}
		connections.Wait()
		Expect(s.current()).To(Equal("third"))
	})

	It("is an error if the first read fails", func() {
		_, err := newSecret("--password-file", passwordIn(path), warn)
		Expect(err).To(MatchError(HavePrefix("--password-file: open ")))
		Expect(err).To(MatchError(os.ErrNotExist))
		Expect(warnings).To(BeEmpty())
	})
})

// parsed returns the certificate in a PEM file.
func parsed(text []byte) *x509.Certificate {
	GinkgoHelper()
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	Expect(err).NotTo(HaveOccurred())
	return cert
}

// A network file system that is away holds up one connection, for a second, and no other.
func TestSecretThatCannotBeReadInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		reads := make(chan func() string, 3) // that are still to come
		reads <- func() string { return "first" }
		reads <- func() string { <-back; return "stale" }
		reads <- func() string { return "second" }
		var warnings []error
		s, err := newSecret("--password-file", func() (string, error) { return (<-reads)(), nil },
			func(err error) { warnings = append(warnings, err) })
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want string, within time.Duration, left int) {
			t.Helper()
			began := time.Now()
			if got := s.current(); got != want {
				t.Errorf("the password is %q, want %q", got, want)
			}
			if took := time.Since(began); took != within {
				t.Errorf("it took %v, want %v", took, within)
			}
			if len(reads) != left {
				t.Errorf("%d reads are still to come, want %d", len(reads), left)
			}
		}
		expect("first", readLimit, 1)
		expect("first", 0, 1)
		expect("first", 0, 1)
		close(back)
		time.Sleep(time.Millisecond)
		expect("second", 0, 0)
		if len(warnings) != 1 || !errors.Is(warnings[0], errSlow) {
			t.Errorf("warnings: %v", warnings)
		}
	})
}
