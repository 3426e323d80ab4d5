package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

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
                                      a Cluster; redis:// also detects one by itself
  rediss+sentinel://…  rediss+cluster://…

Several --redis, or several URLs in REDIS_URL with spaces or commas between them, name
the servers of a quorum, of which a majority decides. Use three or five redis://,
rediss:// or unix:// servers that do not replicate each other. They need not all be up.

USER is optional, as in redis://:PASSWORD@HOST. Percent-encode special characters: %40
for @, %2F for /, %3A for :, %23 for #.

The password may stand in a file instead: name the file with --password-file, or with
the variable REDISLOCK_PASSWORD_FILE. The password is all of its text, without the line
breaks at the end.

Over TLS, each server's certificate must be for the name or address by which it is
reached, and signed by an authority in the file of --tls-ca, or else by one that the
system trusts. --tls-cert and --tls-key name the certificate and the key of the client.
All three are PEM files. The variables REDISLOCK_TLS_CA, REDISLOCK_TLS_CERT and
REDISLOCK_TLS_KEY name them as well; the flags win.

Options follow as ?name=value&…:

  server_name=NAME                    the certificate must be for this name instead
  skip_verify=true                    accept any certificate; anyone may listen in
  sentinel_username=, sentinel_password=
                                      for the Sentinels; USER and PASSWORD are for
                                      the servers
  dial_timeout=, read_timeout=, …     as in go-redis

All users of the machine can see a password on a command line. Prefer a file, or
REDIS_URL.`

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

// shared points to the options that all three kinds have.
type shared struct {
	protocol                 *int
	password                 *string
	tls                      **tls.Config
	dialer                   *func(ctx context.Context, network, addr string) (net.Conn, error)
	dialTimeout, readTimeout *time.Duration
	dials                    *int
	endsWithCtx, anonymous   *bool
}

func (a *address) shared() shared {
	switch {
	case a.sentinel != nil:
		o := a.sentinel
		return shared{&o.Protocol, &o.Password, &o.TLSConfig, &o.Dialer, &o.DialTimeout, &o.ReadTimeout, &o.DialerRetries,
			&o.ContextTimeoutEnabled, &o.DisableIdentity}
	case a.cluster != nil:
		o := a.cluster
		return shared{&o.Protocol, &o.Password, &o.TLSConfig, &o.Dialer, &o.DialTimeout, &o.ReadTimeout, &o.DialerRetries,
			&o.ContextTimeoutEnabled, &o.DisableIdentity}
	}
	o := a.single
	return shared{&o.Protocol, &o.Password, &o.TLSConfig, &o.Dialer, &o.DialTimeout, &o.ReadTimeout, &o.DialerRetries,
		&o.ContextTimeoutEnabled, &o.DisableIdentity}
}

// parseAddress reads a URL as described in addressesHelp. Its errors say which part is wrong and how it looks when it is
// right. They quote nothing, because any part may be a password.
func parseAddress(text string) (*address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	switch {
	case !found:
		return nil, wrong("it does not begin with a scheme like redis://", defaultURL)
	case base != "redis" && base != "rediss" && scheme != "unix", kind != "" && kind != "sentinel" && kind != "cluster":
		return nil, wrong("its scheme is none of redis, rediss, unix, redis+sentinel, redis+cluster, rediss+sentinel and "+
			"rediss+cluster", defaultURL)
	case strings.Contains(rest, "#"):
		return nil, wrong("it contains a #, which stands for %23 in a password", "redis://:pass%23word@host:6379")
	}
	rest, query, _ := strings.Cut(rest, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, wrong("the options after the ? cannot be read",
			"redis://host:6379?read_timeout=2s, and %3F for a ? in the password")
	}
	a := &address{serverName: options.Get("server_name")}
	options.Del("server_name")
	switch {
	case scheme == "unix":
		err = a.parseUnix(rest, options)
	case kind == "":
		err = a.parseSingle(base, rest, options)
	case kind == "sentinel":
		err = a.parseSentinel(base, rest, options)
	default:
		err = a.parseCluster(base, rest, options)
	}
	if _, ours := errors.AsType[*partError](err); err != nil && !ours {
		err = wrongOption(err, query)
	}
	return a, err
}

// partError is the error for a URL of which a part is wrong.
type partError struct{ what, example string }

func wrong(what, example string) error { return &partError{what, example} }

func (e *partError) Error() string { return e.what + "; write it like " + e.example }

// optionOf finds the name of an option in an error of go-redis.
var optionOf = regexp.MustCompile(`^redis: (?:invalid ([a-z_]+) (number|duration|boolean)|unexpected option: ([a-z_]+))`)

// wrongOption returns the error for an option that go-redis has refused. The name of an unknown option may be part of a
// password with a question mark. An @ further on shows that it is.
func wrongOption(err error, query string) error {
	parts := optionOf.FindStringSubmatch(err.Error())
	switch {
	case strings.Contains(query, "@"):
		return wrong("it has an @ behind a ?", "redis://:pass%3Fword@host:6379, with %3F for a ? in the password")
	case parts == nil:
		return wrong("an option after the ? is not known, or has a value that it cannot have", "redis://host:6379?read_timeout=2s")
	case parts[3] != "":
		return wrong("the option "+parts[3]+" is not known", "redis://host:6379?read_timeout=2s")
	}
	example := map[string]string{"number": "3", "duration": "2s", "boolean": "true"}[parts[2]]
	return wrong("the value of "+parts[1]+" is not a "+parts[2], "redis://host:6379?"+parts[1]+"="+example)
}

func (a *address) parseUnix(rest string, options url.Values) error {
	user, path, err := cutUser(rest)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(path, "/") {
		return wrong("it has no path from / on", "unix:///run/redis.sock")
	}
	if path, err = url.PathUnescape(path); err != nil {
		return wrong("its path has a % without two digits behind it", "unix:///run/redis.sock, and %25 for a %")
	}
	if db := options.Get("db"); !isNumber(db, math.MaxInt32) && db != "" {
		return wrong("the value of db is not a number", "unix:///run/redis.sock?db=2")
	}
	u := url.URL{Scheme: "unix", User: user, Path: path, RawQuery: options.Encode()}
	a.where = path
	a.single, err = redis.ParseURL(u.String())
	return err
}

func (a *address) parseSingle(base, rest string, options url.Values) error {
	user, hosts, path, err := parts(rest, "6379")
	if err != nil {
		return err
	}
	if len(hosts) > 1 {
		return wrong("it has several hosts",
			"redis+cluster://host:6379,host:6379 or redis+sentinel://host:26379,host:26379/MASTER")
	}
	if err := checkDatabase(path, "redis://host:6379/0"); err != nil {
		return err
	}
	u := url.URL{Scheme: base, User: user, Host: hosts[0], Path: path, RawQuery: options.Encode()}
	a.where = hosts[0]
	a.single, err = redis.ParseURL(u.String())
	return err
}

// checkDatabase returns an error for a path that is not empty and not the number of a database.
func checkDatabase(path, example string) error {
	path = strings.Trim(path, "/")
	switch {
	case path == "", isNumber(path, math.MaxInt32):
		return nil
	case strings.Contains(path, "@"):
		return wrong("it has an @ behind a /", "redis://:pass%2Fword@host:6379, with %2F for a / in the password")
	}
	return wrong("the database behind the host is not a number", example)
}

func isNumber(text string, most uint64) bool {
	n, err := strconv.ParseUint(text, 10, 64)
	return err == nil && n <= most
}

// parseSentinel brings the URL into the form of go-redis, where user and password are those for the Sentinels.
func (a *address) parseSentinel(base, rest string, options url.Values) error {
	user, hosts, path, err := parts(rest, "26379")
	if err != nil {
		return err
	}
	const example = "redis+sentinel://host:26379,host:26379/MASTER/0"
	master, db, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if master == "" || options.Has("master_name") {
		return wrong("the name of the master is missing behind the hosts", example)
	}
	if err := checkDatabase(db, example); err != nil {
		return err
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

func (a *address) parseCluster(base, rest string, options url.Values) error {
	user, hosts, path, err := parts(rest, "6379")
	if err != nil {
		return err
	}
	if path = strings.Trim(path, "/"); path != "" && path != "0" {
		return wrong("it has a database, and a Cluster has only one", "redis+cluster://host:6379,host:6379")
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
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		rest, path = rest[:slash], rest[slash:]
	}
	user, rest, err = cutUser(rest)
	if err != nil {
		return nil, nil, "", err
	}
	for host := range strings.SplitSeq(rest, ",") {
		if host, err = withPort(host, port); err != nil {
			return nil, nil, "", err
		}
		hosts = append(hosts, host)
	}
	if path, err = url.PathUnescape(path); err != nil {
		return nil, nil, "", wrong("there is a % without two digits behind the host",
			"redis://host:6379/0, and %2F for a / in the password")
	}
	return user, hosts, path, nil
}

// cutUser cuts USER:PASSWORD@ from the beginning of a text.
func cutUser(text string) (user *url.Userinfo, rest string, err error) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return nil, text, nil
	}
	u, err := url.Parse("redis://" + text[:at] + "@host")
	if err != nil || u.User == nil {
		return nil, "", wrong("a special character in user or password is not percent-encoded",
			"redis://user:pass%25word@host:6379, with %25 for a %, %2F for a /, %3A for a :, %40 for an @")
	}
	return u.User, text[at+1:], nil
}

// withPort checks HOST[:PORT], and adds the port if there is none.
func withPort(host, port string) (string, error) {
	u, err := url.Parse("redis://" + host)
	switch own := host[strings.LastIndexAny(host, ":]")+1:]; {
	case strings.Contains(host, ":") && !strings.HasSuffix(host, "]") && !(isNumber(own, math.MaxUint16) && own != "0"):
		return "", wrong("the port is not a number from 1 to 65535", "redis://host:6379, and %3A for a : in the password")
	case err == nil && u.Hostname() == "":
		return "", wrong("a host is missing; is a variable unset?", "redis://host:6379")
	case err != nil || u.Path != "" || u.RawQuery != "":
		return "", wrong("a host is not a name or an address", "redis://host:6379 or redis://[2001:db8::1]:6379")
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), nil
}
