package connect

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

const addressesHelp = `Set the server with --redis, or with the variable REDIS_URL:

  redis://[USER:PASSWORD@]HOST[:6379][/DB]
  rediss://…                          the same over TLS
  unix://[USER:PASSWORD@]/PATH[?db=DB]
  redis+sentinel://[USER:PASSWORD@]HOST[:26379][,HOST…]/MASTER[/DB]
                                      the master that these Sentinels name
  redis+cluster://[USER:PASSWORD@]HOST[:6379][,HOST…]
                                      a Cluster; redis:// finds out by itself as well
  rediss+sentinel://…  rediss+cluster://…

USER is optional, as in redis://:PASSWORD@HOST. Percent-encode special characters: %40
for @, %2F for /, %3A for :, %23 for #.

Over TLS, each server's certificate must be for the name or address by which it is
reached, and signed by an authority in the file of --tls-ca, or else by one that the
system trusts.
--tls-cert and --tls-key are the certificate and key of the client.

Options follow as ?name=value&…:

  server_name=NAME                    the certificate must be for this name instead
  skip_verify=true                    accept any certificate; anyone may listen in
  sentinel_username=, sentinel_password=
                                      for the Sentinels; USER and PASSWORD are for
                                      the servers
  dial_timeout=, read_timeout=, …     as in go-redis

All users of the machine can see a password on a command line. Prefer REDIS_URL.`

// NewAddressesTopic returns a page of the help.
func NewAddressesTopic() *cobra.Command {
	return &cobra.Command{Use: "addresses", Short: "How to name the Redis server", Long: addressesHelp}
}

// address is a parsed URL: of its options exactly one is set.
type address struct {
	single   *redis.Options
	sentinel *redis.FailoverOptions
	cluster  *redis.ClusterOptions

	where      string // the same for people, without a password
	serverName string // the name on every server's certificate; "" for the name that is dialled
}

// protocol returns the version of the protocol that go-redis speaks with these options.
func (a *address) protocol() int {
	var protocol int
	switch {
	case a.sentinel != nil:
		protocol = a.sentinel.Protocol
	case a.cluster != nil:
		protocol = a.cluster.Protocol
	default:
		protocol = a.single.Protocol
	}
	return cmp.Or(protocol, 3)
}

// tlsConfig returns what these options say about TLS; nil for a connection without it.
func (a *address) tlsConfig() *tls.Config {
	switch {
	case a.sentinel != nil:
		return a.sentinel.TLSConfig
	case a.cluster != nil:
		return a.cluster.TLSConfig
	}
	return a.single.TLSConfig
}

var errAddress = errors.New("not an address")

// parseAddress reads a URL as described in addressesHelp. Its errors quote nothing, because any part may be a password.
func parseAddress(text string) (*address, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	rest, query, _ := strings.Cut(rest, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, errAddress
	}
	a := &address{serverName: options.Get("server_name")}
	options.Del("server_name")
	switch {
	case base != "redis" && base != "rediss" && scheme != "unix":
		return nil, errAddress
	case kind == "":
		err = a.parseSingle(scheme+"://"+rest, options)
	case kind == "sentinel":
		err = a.parseSentinel(base, rest, options)
	case kind == "cluster":
		err = a.parseCluster(base, rest, options)
	default:
		err = errAddress
	}
	return a, err
}

func (a *address) parseSingle(text string, options url.Values) (err error) {
	a.single, err = redis.ParseURL(text + "?" + options.Encode())
	if err == nil {
		a.where = a.single.Addr
	}
	return err
}

// parseSentinel brings the URL into the form of go-redis, where user and password are those for the Sentinels.
func (a *address) parseSentinel(base, rest string, options url.Values) (err error) {
	user, hosts, path, err := parts(rest, "26379")
	if err != nil {
		return err
	}
	master, db, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if master == "" || strings.Contains(db, "/") || options.Has("master_name") {
		return errAddress
	}
	if user != nil {
		password, _ := user.Password()
		options.Set("username", user.Username())
		options.Set("password", password)
	}
	u := url.URL{Scheme: base, Host: hosts[0], Path: "/" + db}
	if options.Has("sentinel_username") || options.Has("sentinel_password") {
		u.User = url.UserPassword(options.Get("sentinel_username"), options.Get("sentinel_password"))
		options.Del("sentinel_username")
		options.Del("sentinel_password")
	}
	options.Set("master_name", master)
	options["addr"] = hosts[1:]
	u.RawQuery = options.Encode()
	a.sentinel, err = redis.ParseFailoverURL(u.String())
	a.where = "sentinel " + strings.Join(hosts, ",") + " for " + master
	return err
}

func (a *address) parseCluster(base, rest string, options url.Values) (err error) {
	user, hosts, path, err := parts(rest, "6379")
	if err != nil {
		return err
	}
	if path = strings.Trim(path, "/"); path != "" && path != "0" { // a Cluster has one database
		return errAddress
	}
	insecure := options.Get("skip_verify") == "true" // go-redis does not know it here
	options.Del("skip_verify")
	options["addr"] = hosts[1:]
	u := url.URL{Scheme: base, User: user, Host: hosts[0], RawQuery: options.Encode()}
	a.cluster, err = redis.ParseClusterURL(u.String())
	if err == nil && a.cluster.TLSConfig != nil {
		a.cluster.TLSConfig.InsecureSkipVerify = insecure
	}
	a.where = "cluster " + strings.Join(hosts, ",")
	return err
}

// parts takes apart what follows ://, since net/url does not know several hosts.
func parts(rest, port string) (user *url.Userinfo, hosts []string, path string, err error) {
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		u, err := url.Parse("redis://" + authority[:at] + "@host")
		if err != nil {
			return nil, nil, "", errAddress
		}
		user, authority = u.User, authority[at+1:]
	}
	for host := range strings.SplitSeq(authority, ",") {
		u, err := url.Parse("redis://" + host)
		if err != nil || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, nil, "", errAddress
		}
		hosts = append(hosts, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)))
	}
	path, err = url.PathUnescape(path)
	return user, hosts, path, err
}
