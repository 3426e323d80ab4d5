package connect

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// files are the names of the files that a connection needs. A flag wins over its variable, which the fields have as well
// once they are used.
type files struct{ ca, cert, key, password string }

func (f *files) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.password, "password-file", "", "`FILE` of the password (default $REDISLOCK_PASSWORD_FILE)")
	flags.StringVar(&f.ca, "tls-ca", "", "`FILE` of the authorities that may vouch for the server (default $REDISLOCK_TLS_CA)")
	flags.StringVar(&f.cert, "tls-cert", "", "`FILE` of the certificate to show to the server (default $REDISLOCK_TLS_CERT)")
	flags.StringVar(&f.key, "tls-key", "", "`FILE` of the certificate's private key (default $REDISLOCK_TLS_KEY)")
}

// fill fills in a file that a variable names, and returns how the user has named it: by the flag or by the variable.
func fill(file *string, getenv func(string) string, flag, variable string) (name string) {
	if *file != "" {
		return flag
	}
	if *file = getenv(variable); *file != "" {
		return variable
	}
	return flag
}

// setPassword reads the file of the password, if there is one.
func (f *files) setPassword(getenv func(string) string, a *address) error {
	name := fill(&f.password, getenv, "--password-file", "REDISLOCK_PASSWORD_FILE")
	if f.password == "" {
		return nil
	}
	text, err := os.ReadFile(f.password)
	if err != nil {
		return cli.Usagef("%s: %w", name, err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	own := a.shared().password
	switch {
	case password == "":
		return cli.Usagef("%s: there is no password in %s", name, f.password)
	case *own != "":
		return cli.Usagef("the URL has a password, and so has %s; leave one of them out", name)
	}
	*own = password
	return nil
}

// secure completes the TLS configuration of the URL, which is nil for a connection without TLS, with the files. The
// certificate of every server must be for the name that is dialled, or for serverName.
func (f *files) secure(getenv func(string) string, config *tls.Config, serverName string) (*tls.Config, error) {
	ca := fill(&f.ca, getenv, "--tls-ca", "REDISLOCK_TLS_CA")
	cert := fill(&f.cert, getenv, "--tls-cert", "REDISLOCK_TLS_CERT")
	key := fill(&f.key, getenv, "--tls-key", "REDISLOCK_TLS_KEY")
	if config == nil {
		for _, set := range []struct{ name, value string }{
			{ca, f.ca}, {cert, f.cert}, {key, f.key}, {"server_name", serverName},
		} {
			if set.value != "" {
				return nil, cli.Usagef("%s is set, but the address is one without TLS; write rediss:// instead of redis://", set.name)
			}
		}
		return nil, nil
	}
	config = &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: serverName,
		InsecureSkipVerify: config.InsecureSkipVerify, // only if the URL asks for it
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, cli.Usagef("%s: %w", ca, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.Usagef("%s: there is no certificate in %s; it has to be in PEM form", ca, f.ca)
		}
	}
	switch {
	case f.cert != "" && f.key != "":
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, cli.Usagef("%s and %s: %w", cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	case f.cert != "":
		return nil, cli.Usagef("%s needs %s, the file of its private key", cert, key)
	case f.key != "":
		return nil, cli.Usagef("%s needs %s, the file of its certificate", key, cert)
	}
	return config, nil
}
