package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

type facts struct {
	info   map[string]string // the fields of INFO; empty if that is forbidden
	config map[string]string // settings, as far as CONFIG GET is allowed
	hello  map[string]string // the fields of HELLO, which no ACL forbids
}

// settings are read by CONFIG GET, because INFO does not have all of them.
var settings = []string{
	"appendfsync", "save", "maxmemory", "maxmemory-policy", "cluster-require-full-coverage", "min-replicas-to-write",
	"min-replicas-max-lag", "repl-backlog-ttl",
}

// learn asks a server. The facts lack what it refuses to say.
func learn(ctx context.Context, server *redis.Client) facts {
	f := facts{info: map[string]string{}, config: map[string]string{}, hello: map[string]string{}}
	for line := range strings.SplitSeq(server.Info(ctx).Val(), "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f.info[name] = value
		}
	}
	for _, name := range settings { // one at a time: before Redis 7, CONFIG GET takes one name
		if value, ok := server.ConfigGet(ctx, name).Val()[name]; ok {
			f.config[name] = value
		}
	}
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello", cmp.Or(server.Options().Protocol, 3))
	_ = server.Process(ctx, hello)
	for name, value := range hello.Val() {
		f.hello[name], _ = value.(string)
	}
	return f
}

func (f facts) version() finding {
	const needs = "the scripts need Redis 6 or newer, or Valkey"
	name, version := "Redis", cmp.Or(f.info["redis_version"], f.hello["version"])
	if valkey := f.info["valkey_version"]; valkey != "" || f.info["server_name"] == "valkey" || f.hello["server"] == "valkey" {
		name, version = "Valkey", cmp.Or(valkey, version)
	}
	major, _, _ := strings.Cut(version, ".")
	switch number, err := strconv.Atoi(major); {
	case err != nil:
		return isUnknown.says("it does not say its version", needs, "ask an administrator for the output of INFO server")
	case number < 6:
		return isBad.says(name+" "+version, needs, "upgrade the server")
	}
	return ok("%s %s", name, version)
}

func (f facts) role() finding {
	switch cmp.Or(f.info["role"], f.hello["role"]) {
	case "master":
		return ok("a master")
	case "slave", "replica":
		return isBad.says("a replica", "it grants no locks, and shows those of its master late",
			"connect to the master, which ROLE names, or to redis+sentinel://HOST/MASTER")
	}
	return isUnknown.says("it does not say whether it is a master", "a replica grants no locks",
		"ask an administrator for the output of ROLE")
}

func (f facts) eviction() finding {
	policy, limit := f.either("maxmemory_policy", "maxmemory-policy"), f.either("maxmemory", "maxmemory")
	bytes, err := strconv.ParseInt(limit, 10, 64)
	used, _ := strconv.ParseInt(f.info["used_memory"], 10, 64)
	const do = "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE; or give the locks a Redis of their own"
	switch {
	case policy == "":
		return isUnknown.says("it does not say its maxmemory-policy", "a server that evicts keys evicts locks",
			"ask an administrator for the output of CONFIG GET maxmemory-policy; it should be noeviction")
	case policy == "noeviction" && bytes > 0 && used > bytes/10*9:
		return isWarning.says("noeviction, and over 90 % of maxmemory is used", "if the rest is used up, no lock can be acquired",
			fmt.Sprintf("CONFIG SET maxmemory %d, then CONFIG REWRITE; or delete other data", 2*bytes))
	case policy == "noeviction":
		return ok("noeviction")
	case err == nil && bytes == 0:
		return ok("%s, but there is no maxmemory, so nothing is evicted", policy)
	case strings.HasPrefix(policy, "volatile-"):
		return isBad.says("maxmemory-policy is "+policy,
			"when memory is short, it deletes keys with an expiry, as all locks are, while somebody holds them", do)
	}
	return isBad.says("maxmemory-policy is "+policy,
		"when memory is short, it deletes any key, also a lock that somebody holds", do)
}

func (f facts) persistence() finding {
	const (
		sync = "CONFIG SET appendfsync always, then CONFIG REWRITE" +
			"; or let the resource check fencing tokens (redislock run --fence-key)"
		do = "CONFIG SET appendonly yes, " + sync
	)
	fsync, knowsFsync := f.config["appendfsync"]
	save, knowsSave := f.config["save"]
	aof := f.info["aof_enabled"]
	switch {
	case aof == "":
		return isUnknown.says("it does not say whether it persists anything",
			"a server that loses its data at a restart loses the locks",
			"ask an administrator for the output of CONFIG GET append*; appendonly should be yes, appendfsync always")
	case aof == "1" && f.info["aof_last_write_status"] == "err":
		return isBad.says("the append-only file cannot be written", "a restart loses the locks",
			"see the log of the server, and free space on its disk")
	case aof == "1" && !knowsFsync:
		return isUnknown.says("it has an append-only file, but does not say when it syncs it",
			"unless appendfsync is always, a crash loses the last locks", sync)
	case aof == "1" && fsync == "always":
		return ok("appendonly, appendfsync always")
	case aof == "1":
		lost := map[string]string{"everysec": "last second or two", "no": "last half minute"}[fsync]
		return isWarning.says("appendfsync is "+fsync, "a crash of the machine loses the locks of the "+lost, sync)
	case !knowsSave:
		return isWarning.says("no append-only file", "a crash loses all locks since the last snapshot, if there are any", do)
	case save == "":
		return isBad.says("nothing is persisted", "every restart loses all locks, also those that somebody holds", do)
	}
	return isWarning.says("snapshots only (save "+save+")", "a crash loses all locks since the last one", do)
}

// replicas checks how long a master goes on granting locks after another server has taken its place.
func (f facts) replicas() finding {
	replicas, err := strconv.Atoi(f.info["connected_slaves"])
	const (
		fence = "let the resource check fencing tokens (redislock run --fence-key), or give the locks a server without failover"
		lost  = "replication is asynchronous: a failover loses the last locks"
	)
	do := fmt.Sprintf("on each server, CONFIG SET min-replicas-to-write %d, CONFIG SET min-replicas-max-lag 1, "+
		"then CONFIG REWRITE (it grants no locks then while a replica is away); %s", replicas, fence)
	least, lag := f.config["min-replicas-to-write"], f.config["min-replicas-max-lag"]
	wanted, _ := strconv.Atoi(least)
	found := fmt.Sprintf("%d, min-replicas-to-write %s, min-replicas-max-lag %s", replicas, least, lag)
	switch {
	case err != nil:
		return isUnknown.says("it does not say whether it has replicas", lost, fence)
	case replicas == 0:
		return ok("none, so no failover can lose a lock")
	case f.info["min_slaves_good_slaves"] == "": // one of the two settings is 0
		return isWarning.says(fmt.Sprintf("%d, without min-replicas-to-write", replicas),
			lost+", and a master whose place another has taken keeps granting them until it learns of that", do)
	case least == "":
		return isWarning.says(fmt.Sprintf("%d, with min-replicas-to-write", replicas),
			lost+", and it does not say for how long a master whose place another has taken keeps granting them", do)
	case wanted < replicas || lag != "1":
		return isWarning.says(found, lost+", and a master whose place another has taken keeps granting them while it has so many "+
			"replicas, and for that many seconds more", do)
	}
	return isWarning.says(found, lost+", of one or two seconds", fence)
}

var addressOf = regexp.MustCompile(`ip=([^,]*),port=(\d+)`)

// replicaAddrs returns the addresses of the replicas that a master knows.
func (f facts) replicaAddrs() (addrs []string) {
	for i := 0; ; i++ {
		about := addressOf.FindStringSubmatch(f.info[fmt.Sprint("slave", i)])
		if about == nil {
			return addrs
		}
		addrs = append(addrs, net.JoinHostPort(about[1], about[2]))
	}
}

func (f facts) cluster() finding {
	const tags = "a Cluster: all keys of one lock need one hash tag, as in {order:7}:stock"
	switch enabled, mode := f.info["cluster_enabled"], f.hello["mode"]; {
	case enabled == "0", enabled == "" && mode != "" && mode != "cluster":
		return ok("none, so any keys can be locked together")
	case enabled == "" && mode == "":
		return isUnknown.says("it does not say whether it is a Cluster", "on "+tags,
			"use such names in any case, as in redislock run -k {order:7} -k {order:7}:stock")
	case f.config["cluster-require-full-coverage"] == "yes":
		return ok("%s; if no node serves a slot, all slots stop (cluster-require-full-coverage)", tags)
	}
	return ok("%s", tags)
}

func (f facts) either(field, setting string) string {
	if value, ok := f.info[field]; ok {
		return value
	}
	return f.config[setting]
}
