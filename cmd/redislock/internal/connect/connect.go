// Package connect connects to the Redis that a URL and flags name, and explains in plain words why that Redis cannot be
// used. It knows nothing of what a command does there.
package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

const defaultURL = "redis://127.0.0.1:6379"

// Target is the Redis that the command line names, with the environment of the program.
type Target struct {
	*cli.Env

	Where  string // the address, without a password; set by Connect
	AskAll bool   // Connect waits for all servers of a quorum, and not only a moment longer than for a majority

	Guarded bool          // Open gives the locks the guard of the flags, or the one that it finds
	Longest time.Duration // the longest ttl of these locks; 0 if none is acquired

	Guard Guard

	urls     []string
	files    files
	patience time.Duration // how long Connect waits for an answer

	overTLS bool
}

// AddFlags adds the flags that name the Redis.
func (t *Target) AddFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&t.urls, "redis", nil,
		"`URL` of the Redis (default $REDIS_URL, or else "+defaultURL+`); several are a quorum; see "redislock help addresses"`)
	t.files.password.addFlag(flags, "password-file", "REDISLOCK_PASSWORD_FILE", "the password")
	t.files.ca.addFlag(flags, "tls-ca", "REDISLOCK_TLS_CA", "the authorities that may vouch for the server")
	t.files.cert.addFlag(flags, "tls-cert", "REDISLOCK_TLS_CERT", "the certificate to show to the server")
	t.files.key.addFlag(flags, "tls-key", "REDISLOCK_TLS_KEY", "the certificate's private key")
	cli.DurationVar(flags, &t.patience, "connect-timeout", "", defaultPatience,
		"wait at most `D` for an answer when connecting")
	t.Guard.addFlags(flags)
}

// CheckFlags returns an error if the flags cannot be used.
func (t *Target) CheckFlags(flags *pflag.FlagSet) error {
	if slices.Contains(t.urls, "") {
		return cli.Usagef("--redis is empty; is a variable unset?")
	}
	if t.patience <= 0 {
		return cli.Usagef("--connect-timeout %v is not more than 0", t.patience)
	}
	return t.Guard.check(flags, t.Getenv)
}

// Silence returns the error for a Redis that has not answered within d.
func (t *Target) Silence(d time.Duration) error {
	if t.IsQuorum() {
		return cli.Unavailablef("no answer from a majority of the servers %s within %v", t.Where, d)
	}
	return cli.Unavailablef("no answer from the Redis at %s within %v", t.Where, d)
}

const defaultPatience = 3 * time.Second

// urlsOf returns the URLs of the Redis, and where they are from.
func (t *Target) urlsOf() (urls []string, from string) {
	if len(t.urls) > 0 {
		return t.urls, "--redis"
	}
	if urls = splitURLs(t.Getenv("REDIS_URL")); len(urls) == 0 {
		urls = []string{defaultURL}
	}
	return urls, "REDIS_URL"
}

// Connect returns a client for the Redis that the flags name; a *Quorum for several servers, and for a server of a Cluster a
// client for the whole Cluster. It asks the server what it is, for as long as --connect-timeout says.
func (t *Target) Connect(ctx context.Context) (redis.UniversalClient, error) {
	urls, from := t.urlsOf()
	var all []*address
	for _, text := range urls {
		a, err := parseAddress(text)
		if err != nil {
			return nil, cli.Usagef(`%s cannot be read: %w; see "redislock help addresses"`, from, err)
		}
		t.Where = a.where
		if err := t.files.setPassword(t.Getenv, a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	if len(all) > 1 {
		return t.connectAll(ctx, all)
	}
	a := all[0]
	client, err := t.dial(a)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	mode, err := ask(ctx, client, a.Protocol)
	switch {
	case err != nil:
		err = t.Explain(err)
	case a.kind != single:
	case mode == "sentinel":
		err = t.unusable("it is a Sentinel; write redis+sentinel://HOST:PORT/MASTER, with the name of the master")
	case mode == "cluster" && a.Network == "unix":
		err = t.unusable("it belongs to a Cluster; write redis+cluster://HOST:PORT")
	case mode == "cluster":
		_ = client.Close()
		a.kind, a.cluster = cluster, new(redis.ClusterOptions)
		return t.dial(a)
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// dial returns a client for an address. Its only I/O is to read files. A connection gets no name, and does not announce the
// library: that takes time, and rights that a user who only locks may not have.
func (t *Target) dial(a *address) (redis.UniversalClient, error) {
	config, err := t.files.secure(t.Getenv, a)
	if err != nil {
		return nil, err
	}
	t.overTLS = config != nil
	opt := *a.Options
	opt.TLSConfig, opt.Dialer, opt.DialerRetries = config, dialer(config, t.patience), 1
	opt.ContextTimeoutEnabled, opt.DisableIdentity = true, true
	opt.DialTimeout = cmp.Or(opt.DialTimeout, t.patience) // the URL may have others
	opt.ReadTimeout = cmp.Or(opt.ReadTimeout, max(t.patience, defaultPatience))
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return a.client(&opt), nil
}

// dialer returns a function that makes connections, and returns when ctx ends, even during the TLS handshake. It checks a
// certificate against the name that is dialled.
func dialer(config *tls.Config, patience time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: patience}
	if config == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
}

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
