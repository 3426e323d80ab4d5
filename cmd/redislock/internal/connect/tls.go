package connect

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// secure completes the TLS configuration of the URL, which is nil for a connection without TLS, with the files that the
// flags name. The certificate of every server must be for the name that is dialled, or for serverName.
func (t *Target) secure(config *tls.Config, serverName string) (*tls.Config, error) {
	if config == nil {
		if t.ca != "" || t.cert != "" || t.key != "" || serverName != "" {
			return nil, cli.Usagef("TLS is set up, but the address is one without TLS; write rediss:// instead of redis://")
		}
		return nil, nil
	}
	t.overTLS = true
	config = &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: serverName,
		InsecureSkipVerify: config.InsecureSkipVerify, // only if the URL asks for it
	}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, cli.Usagef("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.Usagef("--tls-ca: there is no certificate in %s; it has to be in PEM form", t.ca)
		}
	}
	switch {
	case t.cert != "" && t.key != "":
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, cli.Usagef("--tls-cert and --tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	case t.cert != "":
		return nil, cli.Usagef("--tls-cert needs --tls-key, the file of its private key")
	case t.key != "":
		return nil, cli.Usagef("--tls-key needs --tls-cert, the file of its certificate")
	}
	return config, nil
}
