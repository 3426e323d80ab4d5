package connect

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// file is a file that a connection needs. A flag names it, or else a variable.
type file struct{ flag, variable, path string }

func (f *file) addFlag(flags *pflag.FlagSet, flag, variable, usage string) {
	f.flag, f.variable = "--"+flag, variable
	flags.StringVar(&f.path, flag, "", "`FILE` of "+usage+" (default $"+variable+")")
}

// find returns the path of the file, "" for none, and how the user has named it: by the flag or by the variable.
func (f *file) find(getenv func(string) string) (path, name string) {
	if path = getenv(f.variable); f.path == "" && path != "" {
		return path, f.variable
	}
	return f.path, f.flag
}

type files struct {
	ca, cert, key, password file

	passwordFrom string // the file that was read; "" for none
}

func (f *files) addFlags(flags *pflag.FlagSet) {
	f.password.addFlag(flags, "password-file", "REDISLOCK_PASSWORD_FILE", "the password")
	f.ca.addFlag(flags, "tls-ca", "REDISLOCK_TLS_CA", "the authorities that may vouch for the server")
	f.cert.addFlag(flags, "tls-cert", "REDISLOCK_TLS_CERT", "the certificate to show to the server")
	f.key.addFlag(flags, "tls-key", "REDISLOCK_TLS_KEY", "the certificate's private key")
}

func (f *files) setPassword(getenv func(string) string, a *address) error {
	path, name := f.password.find(getenv)
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		return cli.Usagef("%s: %w", name, err)
	case password == "":
		return cli.Usagef("%s: there is no password in %s", name, path)
	case a.Password != "":
		return cli.Usagef("the URL has a password, and so has %s; leave one of them out", name)
	}
	a.Password, f.passwordFrom = password, path
	return nil
}

// secure returns the TLS configuration for an address; nil without TLS. The certificate of every server must be for the name
// that is dialled, or for serverName.
func (f *files) secure(getenv func(string) string, a *address) (*tls.Config, error) {
	caFile, ca := f.ca.find(getenv)
	certFile, cert := f.cert.find(getenv)
	keyFile, key := f.key.find(getenv)
	if a.TLSConfig == nil {
		for _, set := range [][2]string{{ca, caFile}, {cert, certFile}, {key, keyFile}, {"server_name", a.serverName}} {
			if set[1] != "" {
				return nil, cli.Usagef("%s is set, but the address is one without TLS; write rediss:// instead of redis://", set[0])
			}
		}
		return nil, nil
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: a.serverName,
		InsecureSkipVerify: a.TLSConfig.InsecureSkipVerify, // only if the URL asks for it
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, cli.Usagef("%s: %w", ca, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.Usagef("%s: there is no certificate in %s; it has to be in PEM form", ca, caFile)
		}
	}
	switch {
	case certFile != "" && keyFile != "":
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, cli.Usagef("%s and %s: %w", cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	case certFile != "":
		return nil, cli.Usagef("%s needs %s, the file of its private key", cert, key)
	case keyFile != "":
		return nil, cli.Usagef("%s needs %s, the file of its certificate", key, cert)
	}
	return config, nil
}
