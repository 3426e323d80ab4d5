package connect

import (
	"cmp"
	_ "embed"
	"errors"
	"math"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

//go:embed addresses.txt
var addresses string

// NewAddressesTopic returns the page "redislock help addresses".
func NewAddressesTopic() *cobra.Command {
	return cli.Describe(addresses, &cobra.Command{Use: "addresses", Short: "How to name the Redis server"})
}

const (
	single   = ""
	sentinel = "sentinel"
	cluster  = "cluster"
)

type address struct {
	*redis.Options // of a connection to one server; Addr is the first of hosts

	kind  string
	hosts []string // none for a socket

	master                         string // the name that the Sentinels know
	sentinelUser, sentinelPassword string

	failover *redis.FailoverOptions // what the URL says of Sentinels beyond Options
	cluster  *redis.ClusterOptions  // and of a Cluster

	where      string // the same for people, without a password
	serverName string // the name on every server's certificate; "" for the name that is dialled
}

// optionsOf are the options that only one kind of client has. NewFailoverClient does not accept those that choose a route.
var optionsOf = map[string][]string{
	sentinel: {"replica_only", "use_disconnected_replicas"},
	cluster:  {"max_redirects", "read_only", "route_by_latency", "route_by_latency_tolerance", "route_randomly"},
}

// parseAddress reads a URL as described in addresses.txt. Its errors say which part is wrong and how to write it. They quote
// nothing, because any part may be a password.
func parseAddress(text string) (*address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	switch {
	case !found:
		return nil, wrong("it does not begin with a scheme like redis://", defaultURL)
	case base != "redis" && base != "rediss" && scheme != "unix", kind != single && kind != sentinel && kind != cluster:
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
	take := func(name string) string {
		defer options.Del(name)
		return options.Get(name)
	}
	a := &address{kind: kind, serverName: take("server_name")}
	if kind == sentinel {
		a.sentinelUser, a.sentinelPassword = take("sentinel_username"), take("sentinel_password")
	}
	own := url.Values{}
	for _, name := range optionsOf[kind] {
		if options.Has(name) {
			own.Set(name, take(name))
		}
	}
	u := &url.URL{Scheme: base, RawQuery: options.Encode()}
	if err := a.parsePlace(u, rest); err != nil {
		return nil, err
	}
	if db := options.Get("db"); db != "" && !isNumber(db, math.MaxInt32) {
		return nil, wrong("the value of db is not a number", "unix:///run/redis.sock?db=2")
	}
	a.Options, err = redis.ParseURL(u.String())
	switch {
	case err != nil:
	case kind == sentinel:
		a.failover, err = redis.ParseFailoverURL("redis://host?" + own.Encode())
	case kind == cluster:
		a.cluster, err = redis.ParseClusterURL("redis://host?" + own.Encode())
	}
	switch {
	case err != nil:
		return nil, wrongOption(err, query)
	case kind == cluster && a.DB != 0:
		return nil, wrong("it has a database, and a Cluster has only one", "redis+cluster://host:6379,host:6379")
	}
	return a, nil
}

// parsePlace reads what stands between :// and ?, and fills in u. net/url does not know several hosts.
func (a *address) parsePlace(u *url.URL, text string) (err error) {
	path := ""
	if slash := strings.IndexByte(text, '/'); slash >= 0 {
		text, path = text[:slash], text[slash:]
	}
	if u.User, text, err = cutUser(text); err != nil {
		return err
	}
	if u.Path, err = url.PathUnescape(path); err != nil {
		return wrong("there is a % without two digits behind the host or in the path",
			"redis://host:6379/0, with %2F for a / in the password, and %25 for a %")
	}
	if u.Scheme == "unix" {
		a.where = u.Path
		if text != "" || path == "" {
			return wrong("it has no path from / on", "unix:///run/redis.sock")
		}
		return nil
	}
	port, example := "6379", "redis://host:6379/0"
	if a.kind == sentinel {
		port, example = "26379", "redis+sentinel://host:26379,host:26379/MASTER/0"
		a.master, u.Path, _ = strings.Cut(strings.Trim(u.Path, "/"), "/")
	}
	for host := range strings.SplitSeq(text, ",") {
		if host, err = withPort(host, port); err != nil {
			return err
		}
		a.hosts = append(a.hosts, host)
	}
	u.Host = a.hosts[0]
	switch a.where = strings.TrimSpace(a.kind + " " + strings.Join(a.hosts, ",")); {
	case a.kind == sentinel && a.master == "":
		return wrong("the name of the master is missing behind the hosts", example)
	case a.kind == sentinel:
		a.where += " for " + a.master
	case a.kind == single && len(a.hosts) > 1:
		return wrong("it has several hosts",
			"redis+cluster://host:6379,host:6379 or redis+sentinel://host:26379,host:26379/MASTER")
	}
	switch db := strings.Trim(u.Path, "/"); {
	case db == "", isNumber(db, math.MaxInt32):
		return nil
	case strings.Contains(db, "@"):
		return wrong("it has an @ behind a /", "redis://:pass%2Fword@host:6379, with %2F for a / in the password")
	}
	return wrong("the database behind the host is not a number", example)
}

// client returns a client for the address, with the options of each connection.
func (a *address) client(opt *redis.Options) redis.UniversalClient {
	switch a.kind {
	case sentinel:
		o := *a.failover
		o.MasterName, o.SentinelAddrs = a.master, a.hosts
		o.SentinelUsername, o.SentinelPassword = a.sentinelUser, a.sentinelPassword
		fill(&o, opt)
		return redis.NewFailoverClient(&o)
	case cluster:
		o := *a.cluster
		o.Addrs = a.hosts
		fill(&o, opt)
		return redis.NewClusterClient(&o)
	}
	return redis.NewClient(opt)
}

// fill sets all fields of other options that those of a single server have as well.
func fill(options any, from *redis.Options) {
	to, all := reflect.ValueOf(options).Elem(), reflect.ValueOf(from).Elem()
	for field, value := range all.Fields() {
		if same := to.FieldByName(field.Name); field.IsExported() && same.IsValid() {
			same.Set(value)
		}
	}
}

func wrong(what, example string) error { return errors.New(what + "; write it like " + example) }

var optionOf = regexp.MustCompile(`^redis: (?:invalid ([a-z_]+) (number|duration|boolean)|unexpected option: ([a-z_]+))`)

// wrongOption returns the error for an option that go-redis has refused. An @ shows that the option is part of a password.
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

func isNumber(text string, most uint64) bool {
	n, err := strconv.ParseUint(text, 10, 64)
	return err == nil && n <= most
}

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
