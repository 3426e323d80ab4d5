package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// facts are what a server says about itself.
type facts struct {
	info   map[string]string // the fields of INFO; empty if that is forbidden
	config map[string]string // settings, as far as CONFIG GET is allowed
	hello  map[string]string // the fields of HELLO, which no ACL forbids
}

// settings are read by CONFIG GET, because INFO does not have all of them.
var settings = []string{
	"appendfsync", "save", "maxmemory", "maxmemory-policy", "cluster-require-full-coverage", "min-replicas-to-write",
	"min-replicas-max-lag",
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
	if reply, err := server.Do(ctx, "hello", cmp.Or(server.Options().Protocol, 3)).Result(); err == nil {
		fields, _ := reply.(map[any]any)
		for name, value := range fields {
			if name, ok := name.(string); ok {
				f.hello[name], _ = value.(string)
			}
		}
	}
	return f
}

// oldest is the oldest major version that the library supports.
const oldest = 6

func (f facts) version() finding {
	c := finding{Check: "version"}
	name, version := "Redis", cmp.Or(f.info["redis_version"], f.hello["version"])
	if valkey := f.info["valkey_version"]; valkey != "" || f.info["server_name"] == "valkey" || f.hello["server"] == "valkey" {
		name = "Valkey"
		if valkey != "" {
			version = valkey
		}
	}
	major, _, _ := strings.Cut(version, ".")
	number, err := strconv.Atoi(major)
	switch {
	case err != nil:
		return c.sayf(isUnknown, "it does not say its version").
			because("the scripts need Redis 6 or newer, or Valkey", "ask an administrator for the output of INFO server")
	case number < oldest:
		return c.sayf(isBad, "%s %s", name, version).
			because("the scripts need Redis 6 or newer, or Valkey", "upgrade the server")
	}
	return c.sayf(isOK, "%s %s", name, version)
}

func (f facts) role() finding {
	c := finding{Check: "role"}
	switch cmp.Or(f.info["role"], f.hello["role"]) {
	case "master":
		return c.sayf(isOK, "a master")
	case "slave", "replica":
		return c.sayf(isBad, "a replica").
			because("it grants no locks, and shows those of its master late",
				"connect to the master, which ROLE names, or to redis+sentinel://HOST/MASTER")
	}
	return c.sayf(isUnknown, "it does not say whether it is a master").
		because("a replica grants no locks", "ask an administrator for the output of ROLE")
}

func (f facts) eviction() finding {
	c := finding{Check: "eviction"}
	policy, limit := f.either("maxmemory_policy", "maxmemory-policy"), f.either("maxmemory", "maxmemory")
	bytes, err := strconv.ParseInt(limit, 10, 64)
	used, _ := strconv.ParseInt(f.info["used_memory"], 10, 64)
	const do = "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE; or give the locks a Redis of their own"
	switch {
	case policy == "":
		return c.sayf(isUnknown, "it does not say its maxmemory-policy").
			because("a server that evicts keys evicts locks",
				"ask an administrator for the output of CONFIG GET maxmemory-policy; it should be noeviction")
	case policy == "noeviction" && bytes > 0 && used > bytes/10*9:
		return c.sayf(isWarning, "noeviction, and over 90 %% of maxmemory is used").
			because("if the rest is used up, no lock can be acquired",
				fmt.Sprintf("CONFIG SET maxmemory %d, then CONFIG REWRITE; or delete other data", 2*bytes))
	case policy == "noeviction":
		return c.sayf(isOK, "noeviction")
	case err == nil && bytes == 0:
		return c.sayf(isOK, "%s, but there is no maxmemory, so nothing is evicted", policy)
	case strings.HasPrefix(policy, "volatile-"):
		return c.sayf(isBad, "maxmemory-policy is %s", policy).
			because("when memory is short, it deletes keys with an expiry, as all locks are, while somebody holds them", do)
	}
	return c.sayf(isBad, "maxmemory-policy is %s", policy).
		because("when memory is short, it deletes any key, also a lock that somebody holds", do)
}

func (f facts) persistence() finding {
	c := finding{Check: "persistence"}
	const (
		orFence = "; or let the resource check fencing tokens (redislock run --fence-key)"
		sync    = "CONFIG SET appendfsync always, then CONFIG REWRITE" + orFence
		do      = "CONFIG SET appendonly yes, " + sync
	)
	fsync, knowsFsync := f.config["appendfsync"]
	save, knowsSave := f.config["save"]
	switch {
	case f.info["aof_enabled"] == "":
		return c.sayf(isUnknown, "it does not say whether it persists anything").
			because("a server that loses its data at a restart loses the locks",
				"ask an administrator for the output of CONFIG GET append*; "+
					"appendonly should be yes, appendfsync always")
	case f.info["aof_enabled"] == "1" && f.info["aof_last_write_status"] == "err":
		return c.sayf(isBad, "the append-only file cannot be written").
			because("a restart loses the locks", "see the log of the server, and free space on its disk")
	case f.info["aof_enabled"] == "1" && !knowsFsync:
		return c.sayf(isUnknown, "it has an append-only file, but does not say when it syncs it").
			because("unless appendfsync is always, a crash loses the last locks", sync)
	case f.info["aof_enabled"] == "1" && fsync == "always":
		return c.sayf(isOK, "appendonly, appendfsync always")
	case f.info["aof_enabled"] == "1":
		return c.sayf(isWarning, "appendfsync is %s", fsync).
			because(map[string]string{
				"everysec": "a crash of the machine loses the locks of the last second or two",
				"no":       "a crash of the machine loses the locks of the last half minute",
			}[fsync], sync)
	case !knowsSave:
		return c.sayf(isWarning, "no append-only file").
			because("a crash loses all locks since the last snapshot, if there are any", do)
	case save == "":
		return c.sayf(isBad, "nothing is persisted").because("every restart loses all locks, also those that somebody holds", do)
	}
	return c.sayf(isWarning, "snapshots only (save %s)", save).
		because("a crash loses all locks since the last one", do)
}

// replicas checks how long a master goes on granting locks after another server has taken its place.
func (f facts) replicas() finding {
	c := finding{Check: "replicas"}
	replicas, err := strconv.Atoi(f.info["connected_slaves"])
	const (
		fence = "let the resource check fencing tokens (redislock run --fence-key), or give the locks a server without failover"
		lost  = "replication is asynchronous: a failover loses the last locks"
	)
	do := fmt.Sprintf("on each server, CONFIG SET min-replicas-to-write %d, CONFIG SET min-replicas-max-lag 1, "+
		"then CONFIG REWRITE (it grants no locks then while a replica is away); %s", replicas, fence)
	least, lag := f.config["min-replicas-to-write"], f.config["min-replicas-max-lag"]
	wanted, _ := strconv.Atoi(least)
	switch {
	case err != nil:
		return c.sayf(isUnknown, "it does not say whether it has replicas").
			because("replication is asynchronous, so a failover loses the last locks", fence)
	case replicas == 0:
		return c.sayf(isOK, "none, so no failover can lose a lock")
	case f.info["min_slaves_good_slaves"] == "": // one of the two settings is 0
		return c.sayf(isWarning, "%d, without min-replicas-to-write", replicas).
			because(lost+", and a master whose place another has taken keeps granting them until it learns of that", do)
	case least == "":
		return c.sayf(isWarning, "%d, with min-replicas-to-write", replicas).
			because(lost+", and it does not say for how long a master whose place another has taken keeps granting them", do)
	case wanted < replicas || lag != "1":
		return c.sayf(isWarning, "%d, min-replicas-to-write %s, min-replicas-max-lag %s", replicas, least, lag).
			because(lost+", and a master whose place another has taken keeps granting them while it has so many replicas, "+
				"and for that many seconds more", do)
	}
	return c.sayf(isWarning, "%d, min-replicas-to-write %s, min-replicas-max-lag %s", replicas, least, lag).
		because(lost+", of one or two seconds", fence)
}

// replicaAddrs returns the addresses of the replicas that a master knows.
func (f facts) replicaAddrs() []string {
	var addrs []string
	for i := 0; ; i++ {
		replica, ok := f.info[fmt.Sprint("slave", i)]
		if !ok {
			return addrs
		}
		about := map[string]string{}
		for field := range strings.SplitSeq(replica, ",") {
			name, value, _ := strings.Cut(field, "=")
			about[name] = value
		}
		addrs = append(addrs, net.JoinHostPort(about["ip"], about["port"]))
	}
}

func (f facts) cluster() finding {
	c := finding{Check: "cluster"}
	switch enabled, mode := f.info["cluster_enabled"], f.hello["mode"]; {
	case enabled == "0", enabled == "" && mode != "" && mode != "cluster":
		return c.sayf(isOK, "none, so any keys can be locked together")
	case enabled == "1", enabled == "" && mode == "cluster":
		const tags = "a Cluster: all keys of one lock need one hash tag, as in {order:7}:stock"
		if f.config["cluster-require-full-coverage"] == "yes" {
			return c.sayf(isOK, "%s; if no node serves a slot, all slots stop (cluster-require-full-coverage)", tags)
		}
		return c.sayf(isOK, "%s", tags)
	}
	return c.sayf(isUnknown, "it does not say whether it is a Cluster").
		because("on a Cluster, all keys of one lock need one hash tag, as in {order:7}:stock",
			"use such names in any case, as in redislock run -k {order:7} -k {order:7}:stock")
}

// either returns a field of INFO, or else a setting.
func (f facts) either(field, setting string) string {
	if value, ok := f.info[field]; ok {
		return value
	}
	return f.config[setting]
}
