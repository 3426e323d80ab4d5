package answer

import (
	"errors"
	"strings"
)

// Meaning is what an answer means that refuses, and how to mend that.
type Meaning struct {
	What    string // is wrong, with the server as "it"
	Program string // what to change in a program
	Tool    string // what to change in a call of the command line tool
	Quotes  bool   // What quotes the answer
}

// MeaningOf returns what an error means that is an answer of a server; nothing if the answer is not listed.
func MeaningOf(err error) Meaning {
	a, ok := errors.AsType[answer](err)
	if !ok {
		return Meaning{}
	}
	text := strings.TrimSpace(a.Error())
	for _, m := range meanings {
		if strings.Contains(text, m.words) {
			found := m.Meaning
			found.Quotes = strings.Contains(found.What, "%s")
			found.What = strings.ReplaceAll(found.What, "%s", text)
			return found
		}
	}
	return Meaning{}
}

// meanings lists answers by words that are in them. The first that fits counts. A "%s" stands for the answer.
var meanings = []struct {
	words string
	Meaning
}{
	{"NOAUTH", Meaning{
		What:    "it requires a password",
		Program: "set Password in redis.Options",
		Tool:    "name the file of it with --password-file, or set REDIS_URL=redis://user:password@host:port",
	}},
	{"NOPERM", both("%s", "let an administrator grant it (ACL SETUSER)")},
	{"WRONGPASS", wrongPassword},
	{"invalid password", wrongPassword},
	{"invalid username", wrongPassword},
	{"without any password configured", Meaning{
		What:    "it has no password for this user",
		Program: "leave Username and Password out of redis.Options",
		Tool:    "leave user and password out of the URL",
	}},
	{"protected mode", both(
		"it is in protected mode and refuses connections from other machines", "give it a password and bind it to an address",
	)},
	{"MOVED ", Meaning{
		What:    "it is a node of a Cluster",
		Program: "connect with redis.NewClusterClient",
		Tool:    "write redis+cluster:// instead of redis://",
	}},
	{"SELECT is not allowed in cluster mode", Meaning{
		What:    "it belongs to a Cluster, which has one database",
		Program: "leave DB out of redis.Options, and connect with redis.NewClusterClient",
		Tool:    "leave the number out of the URL",
	}},
	{"DB index is out of range", Meaning{
		What:    "it has no database of that number",
		Program: `choose another DB in redis.Options, or raise "databases" in its configuration`,
		Tool:    `choose another one in the URL, or raise "databases" in its configuration`,
	}},
	{"cluster support disabled", Meaning{
		What:    "it is not a Cluster",
		Program: "connect with redis.NewClient",
		Tool:    "write redis:// instead of redis+cluster://",
	}},
	{"unknown command 'sentinel'", notSentinel},
	{"unknown command `sentinel`", notSentinel},
	{"max number of clients", both("it has reached its limit of clients", `raise "maxclients" in its configuration`)},
	{"LOADING", both("it is still loading its data", "try again in a moment")},
	{"READONLY", Meaning{
		What:    "it is a replica, which grants no locks",
		Program: "connect to the master, or to the Sentinels with redis.NewFailoverClient",
		Tool:    "name the master, or the Sentinels as redis+sentinel://HOST/MASTER",
	}},
	{"MASTERDOWN", Meaning{
		What:    "it is a replica that has lost its master",
		Program: "connect to the master",
		Tool:    "name the master",
	}},
	{"CLUSTERDOWN", both("the Cluster is down (%s)", "see CLUSTER INFO for the slots that no node serves")},
	{"OOM", both("it is out of memory and refuses writes", `raise "maxmemory", or delete other data`)},
}

// both is a meaning with one way to mend it.
func both(what, mend string) Meaning { return Meaning{What: what, Program: mend, Tool: mend} }

var (
	wrongPassword = Meaning{
		What:    "user or password is wrong",
		Program: "see Username and Password in redis.Options",
		Tool:    "percent-encode special characters of the password in the URL, like %40 for @",
	}
	notSentinel = both("it is not a Sentinel", "Sentinels have a port of their own, usually 26379")
)
