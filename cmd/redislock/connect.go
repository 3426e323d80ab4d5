package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// defaultURL is where Redis is when neither --redis nor REDIS_URL says so.
const defaultURL = "redis://127.0.0.1:6379"

// connection is how to reach Redis, as the flags say.
type connection struct {
	url           string
	ca, cert, key string // names of files

	where   string // the address, without a password; set by connect
	overTLS bool
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.url, "redis", "",
		"`URL` of the Redis (default $REDIS_URL, or else "+defaultURL+`); see "redislock help addresses"`)
	flags.StringVar(&c.ca, "tls-ca", "", "`FILE` of the authorities that may vouch for the server, in PEM form")
	flags.StringVar(&c.cert, "tls-cert", "", "`FILE` of the certificate to show to the server")
	flags.StringVar(&c.key, "tls-key", "", "`FILE` of the certificate's private key")
}

// connectLimit is how long connect waits for Redis.
const connectLimit = 3 * time.Second

// connect returns a client of the Redis that the flags name, once that has answered one question: what it is. A server that
// belongs to a Cluster gets a client for all of it. Its errors name the address, never the password.
func (g *globals) connect(ctx context.Context) (redis.UniversalClient, error) {
	c := &g.connection
	from, text := "--redis", c.url
	if text == "" {
		from, text = "REDIS_URL", cmp.Or(g.Getenv("REDIS_URL"), defaultURL)
	}
	a, err := parseAddress(text)
	if err != nil { // which may quote any part of the URL
		return nil, cli.Usagef("%s cannot be read; write it like redis://user:password@host:6379/0, with %%40 for an @ in "+
			`the password; "redislock help addresses" has the other forms`, from)
	}
	c.where = a.where
	client, err := c.dial(a)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	mode, err := ask(ctx, client, a.protocol())
	switch {
	case err != nil:
		err = c.explain(err)
	case mode == "sentinel" && a.single != nil:
		err = c.unusable("it is a Sentinel; write redis+sentinel://HOST:PORT/MASTER, with the name of the master")
	case mode == "cluster" && a.single != nil && a.single.Network == "unix":
		err = c.unusable("it belongs to a Cluster; write redis+cluster://HOST:PORT")
	case mode == "cluster" && a.single != nil:
		_ = client.Close()
		return c.dial(clusterOf(a))
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// dial returns a client for an address. It does no I/O but to read the files of the flags. A connection gets no name and
// says nothing of the library: that takes time, and rights that a user who only locks may not have.
func (c *connection) dial(a *address) (redis.UniversalClient, error) {
	config, err := c.secure(a.tlsConfig(), a.serverName)
	if err != nil {
		return nil, err
	}
	dial, notices := dialer(config), &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch {
	case a.sentinel != nil:
		opt := a.sentinel
		opt.TLSConfig, opt.Dialer, opt.DialerRetries = config, dial, cmp.Or(opt.DialerRetries, 1)
		opt.ContextTimeoutEnabled, opt.DisableIdentity = true, true
		return redis.NewFailoverClient(opt), nil
	case a.cluster != nil:
		opt := a.cluster
		opt.TLSConfig, opt.Dialer, opt.DialerRetries = config, dial, cmp.Or(opt.DialerRetries, 1)
		opt.ContextTimeoutEnabled, opt.DisableIdentity = true, true
		opt.MaintNotificationsConfig = notices
		return redis.NewClusterClient(opt), nil
	}
	opt := a.single
	opt.TLSConfig, opt.Dialer, opt.DialerRetries = config, dial, cmp.Or(opt.DialerRetries, 1)
	opt.ContextTimeoutEnabled, opt.DisableIdentity = true, true
	opt.MaintNotificationsConfig = notices
	return redis.NewClient(opt), nil
}

// clusterOf returns the address of the Cluster that a server belongs to.
func clusterOf(a *address) *address {
	opt := a.single
	return &address{where: a.where, serverName: a.serverName, cluster: &redis.ClusterOptions{
		Addrs: []string{opt.Addr}, Username: opt.Username, Password: opt.Password, ClientName: opt.ClientName,
		Protocol: opt.Protocol, DialTimeout: opt.DialTimeout, ReadTimeout: opt.ReadTimeout, WriteTimeout: opt.WriteTimeout,
		TLSConfig: opt.TLSConfig,
	}}
}

// dialer returns what makes connections: one that ends with ctx also while TLS is negotiated, and lets each server prove
// the name by which it is reached.
func dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: connectLimit}
	if config == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
}

// ask returns what a server says that it is: standalone, cluster or sentinel. Of all commands HELLO is the one that no ACL
// forbids, and it costs as much as a PING.
//
// It is told the protocol that go-redis has agreed upon already: before Redis 6.2 it has to be told one.
func ask(ctx context.Context, client redis.UniversalClient, protocol int) (mode string, err error) {
	hello := once{redis.NewCmd(ctx, "hello", protocol)}
	if err := client.Process(ctx, hello); err != nil {
		if redis.HasErrorPrefix(err, "ERR unknown command") { // it is older than Redis 6, or not Redis; but it is there
			return "", nil
		}
		return "", err
	}
	switch reply := hello.Val().(type) {
	case map[any]any: // RESP3
		mode, _ = reply["mode"].(string)
	case []any: // RESP2
		for i := 0; i+1 < len(reply); i += 2 {
			if reply[i] == "mode" {
				mode, _ = reply[i+1].(string)
			}
		}
	}
	return mode, nil
}
