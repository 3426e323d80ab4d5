package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// secure completes the TLS configuration that came of the URL, which is nil for a connection without TLS, by the files that
// the flags name. Every server is to prove the name that is dialled, or serverName.
func (c *connection) secure(config *tls.Config, serverName string) (*tls.Config, error) {
	if config == nil {
		if c.ca != "" || c.cert != "" || c.key != "" || serverName != "" {
			return nil, cli.Usagef("TLS is set up, but the address is one without TLS; write rediss:// in place of redis://")
		}
		return nil, nil
	}
	c.overTLS = true
	config = &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: serverName,
		InsecureSkipVerify: config.InsecureSkipVerify, // where that is asked for by name
	}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, cli.Usagef("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.Usagef("--tls-ca: there is no certificate in %s; it has to be in PEM form", c.ca)
		}
	}
	switch {
	case c.cert != "" && c.key != "":
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, cli.Usagef("--tls-cert and --tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	case c.cert != "":
		return nil, cli.Usagef("--tls-cert needs --tls-key, the file of its private key")
	case c.key != "":
		return nil, cli.Usagef("--tls-key needs --tls-cert, the file of its certificate")
	}
	return config, nil
}
