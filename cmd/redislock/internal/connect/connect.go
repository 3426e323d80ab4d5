// Package connect connects to the Redis that a URL and flags name, and explains in plain words why that Redis cannot be
// used. It knows nothing of what a command does there.
package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"slices"
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
		if err := t.files.check(t.Getenv, a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	if err := t.files.load(t.Getenv, t.warn); err != nil {
		return nil, err
	}
	if len(all) > 1 {
		return t.connectAll(ctx, all)
	}
	a := all[0]
	client := t.dial(a)
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
		return t.dial(a), nil
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// dial returns a client for an address, without any I/O. A connection gets no name, and does not announce the library: that
// takes time, and rights that a user who only locks may not have.
func (t *Target) dial(a *address) redis.UniversalClient {
	opt := *a.Options
	opt.TLSConfig = secure(a)
	t.overTLS = opt.TLSConfig != nil
	opt.Dialer, opt.DialerRetries = t.dialer(opt.TLSConfig, t.patience), 1
	if password := t.files.secrets.password; password != nil {
		opt.CredentialsProviderContext = func(context.Context) (string, string, error) {
			return a.Username, password.current(), nil
		}
	}
	opt.ContextTimeoutEnabled, opt.DisableIdentity = true, true
	opt.DialTimeout = cmp.Or(opt.DialTimeout, t.patience) // the URL may have others
	opt.ReadTimeout = cmp.Or(opt.ReadTimeout, max(t.patience, defaultPatience))
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return a.client(&opt)
}

// dialer returns a function that makes connections, and returns when ctx ends, even during the TLS handshake. It reads the
// secrets for each connection. It checks a certificate against the name that is dialled.
func (t *Target) dialer(config *tls.Config, patience time.Duration) func(context.Context, string, string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: patience}
	if config == nil {
		return plain.DialContext
	}
	secrets := t.files.secrets
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&tls.Dialer{NetDialer: plain, Config: secrets.configure(config)}).DialContext(ctx, network, addr)
	}
}

// secure returns the TLS configuration for an address, without secrets; nil without TLS. The certificate of every server
// must be for the name that is dialled, or for serverName.
func secure(a *address) *tls.Config {
	if a.TLSConfig == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: a.serverName,
		InsecureSkipVerify: a.TLSConfig.InsecureSkipVerify, // only if the URL asks for it
	}
}

// warn reports what does not keep a connection from being made. A stderr that blocks must not keep it either: it may be for
// a renewal.
func (t *Target) warn(err error) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		t.Complain(err)
	}()
	select {
	case <-said:
	case <-time.After(50 * time.Millisecond):
	}
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

	secrets      *secrets // nil until load
	passwordFrom string   // the file that was read; "" for none
}

// check returns an error if the files do not fit an address, or each other. It does not read them.
func (f *files) check(getenv func(string) string, a *address) error {
	if path, name := f.password.find(getenv); path != "" && a.Password != "" {
		return cli.Usagef("the URL has a password, and so has %s; leave one of them out", name)
	}
	caFile, ca := f.ca.find(getenv)
	certFile, cert := f.cert.find(getenv)
	keyFile, key := f.key.find(getenv)
	if a.TLSConfig == nil {
		for _, set := range [][2]string{{ca, caFile}, {cert, certFile}, {key, keyFile}, {"server_name", a.serverName}} {
			if set[1] != "" {
				return cli.Usagef("%s is set, but the address is one without TLS; write rediss:// instead of redis://", set[0])
			}
		}
	}
	switch {
	case certFile != "" && keyFile == "":
		return cli.Usagef("%s needs %s, the file of its private key", cert, key)
	case certFile == "" && keyFile != "":
		return cli.Usagef("%s needs %s, the file of its certificate", key, cert)
	}
	return nil
}

// load reads the files for the first time. A command that connects again, as while Redis is away, keeps the secrets.
func (f *files) load(getenv func(string) string, warn func(error)) (err error) {
	if f.secrets != nil {
		return nil
	}
	s := new(secrets)
	path, name := f.password.find(getenv)
	if path != "" {
		s.password, err = newSecret(name, passwordIn(path), warn)
	}
	if caPath, ca := f.ca.find(getenv); caPath != "" && err == nil {
		s.roots, err = newSecret(ca, rootsIn(caPath), warn)
	}
	certPath, cert := f.cert.find(getenv)
	keyPath, key := f.key.find(getenv)
	if certPath != "" && err == nil {
		s.pair, err = newSecret(cert+" and "+key, pairIn(certPath, keyPath), warn)
	}
	if err != nil {
		return cli.Usagef("%w", err)
	}
	f.secrets, f.passwordFrom = s, path
	return nil
}
