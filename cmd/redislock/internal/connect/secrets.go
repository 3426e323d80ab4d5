package connect

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// secret is what its files say: a password, authorities, or a certificate with its key. The files may be replaced while the
// program runs, so each new connection asks for the secret. Files that cannot be used at that moment, as when they are
// half-written, leave the secret as it is:
//
//	fresh --- a read fails: warn ---> kept --- a read succeeds ---> fresh
//
// A secret is safe for concurrent use. It never has two reads at the same time.
type secret[T any] struct {
	name string // of the flags or variables, for messages
	read func() (T, error)
	warn func(error) // must not block for long

	mu      sync.Mutex      // protects the fields below
	last    T               // what the last read said that succeeded
	kept    bool            // false: fresh
	reading chan outcome[T] // of a read that takes longer than readLimit; nil for none
}

type outcome[T any] struct {
	value T
	err   error
}

// readLimit bounds how long a connection waits for a read. A network file system that is away must not hold up a renewal.
const readLimit = time.Second

// newSecret reads a secret for the first time. It returns the error of that read.
func newSecret[T any](name string, read func() (T, error), warn func(error)) (*secret[T], error) {
	first, err := read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &secret[T]{name: name, read: read, warn: warn, last: first}, nil
}

// current returns the secret for a new connection. It reads the files, for at most readLimit.
func (s *secret[T]) current() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.readInTime()
	switch {
	case err == nil:
		s.last, s.kept = now, false
	case !s.kept:
		s.kept = true
		s.warn(fmt.Errorf("%s: %w; new connections use what was read before", s.name, err))
	}
	return s.last
}

var errSlow = fmt.Errorf("reading takes longer than %v", readLimit)

// readInTime reads the files. It begins no read while an earlier one goes on. The caller holds mu.
func (s *secret[T]) readInTime() (now T, err error) {
	if s.reading != nil {
		select {
		case <-s.reading: // too old to use
		default:
			return now, errSlow
		}
	}
	result := make(chan outcome[T], 1)
	go func() {
		value, err := s.read()
		result <- outcome[T]{value, err}
	}()
	select {
	case got := <-result:
		s.reading = nil
		return got.value, got.err
	case <-time.After(readLimit):
		s.reading = result
		return now, errSlow
	}
}

// source is one file of a secret. Each read opens it by its path, because Kubernetes replaces a symbolic link on the way to
// it. A pipe, as of --password-file <(pass show redis), can be read only once, so the first read counts for ever.
type source struct {
	path  string
	isPEM bool

	opened bool
	once   bool   // it cannot be read again
	text   []byte // of the first read, if once
	broken int    // blocks of the first read, if isPEM, that were not complete
}

// read returns the content of the file.
func (s *source) read() ([]byte, error) {
	switch {
	case s.once:
		return s.text, nil
	case s.opened: // opening a pipe waits until somebody writes to it
		if info, err := os.Stat(s.path); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no longer a regular file", s.path)
		}
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(file)
	switch {
	case err != nil:
		return nil, err
	case s.opened && s.isPEM && incomplete(text) > s.broken: // x509 and tls would ignore the rest
		return nil, fmt.Errorf("%s is half-written: a certificate or key in it is not complete", s.path)
	case s.opened:
		return text, nil
	}
	s.opened, s.broken = true, incomplete(text)
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() || isDescriptor(s.path) {
		s.once, s.text = true, text
	}
	return text, nil
}

// isDescriptor reports whether a path names an open file of this process. Some systems go on reading there, at the end.
func isDescriptor(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/")
}

// incomplete counts the blocks of a PEM file that are not complete.
func incomplete(text []byte) int {
	n := bytes.Count(text, []byte("-----BEGIN "))
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		n--
	}
	return n
}

// secrets are the secrets of all connections; nil for those that no file holds.
type secrets struct {
	password *secret[string]
	roots    *secret[*x509.CertPool]
	pair     *secret[tls.Certificate]
}

// configure returns a copy of a TLS configuration, with the secrets of this moment.
func (s *secrets) configure(config *tls.Config) *tls.Config {
	config = config.Clone()
	if s.roots != nil {
		config.RootCAs = s.roots.current()
	}
	if s.pair != nil {
		config.Certificates = []tls.Certificate{s.pair.current()}
	}
	return config
}

// The functions below return how to read a secret from its files. Their errors quote no content.

func passwordIn(path string) func() (string, error) {
	file := &source{path: path}
	return func() (string, error) {
		text, err := file.read()
		password := strings.TrimRight(string(text), "\r\n")
		if err == nil && password == "" {
			err = fmt.Errorf("there is no password in %s", path)
		}
		return password, err
	}
}

func rootsIn(path string) func() (*x509.CertPool, error) {
	file := &source{path: path, isPEM: true}
	return func() (*x509.CertPool, error) {
		text, err := file.read()
		roots := x509.NewCertPool()
		if err == nil && !roots.AppendCertsFromPEM(text) {
			err = fmt.Errorf("there is no certificate in %s; it has to be in PEM form", path)
		}
		return roots, err
	}
}

// pairIn reads a certificate and its key together: while only one of them is replaced, they do not match.
func pairIn(certPath, keyPath string) func() (tls.Certificate, error) {
	certFile, keyFile := &source{path: certPath, isPEM: true}, &source{path: keyPath, isPEM: true}
	return func() (tls.Certificate, error) {
		cert, certErr := certFile.read()
		key, keyErr := keyFile.read()
		if err := cmp.Or(certErr, keyErr); err != nil {
			return tls.Certificate{}, err
		}
		return tls.X509KeyPair(cert, key)
	}
}
