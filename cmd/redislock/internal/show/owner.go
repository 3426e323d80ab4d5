package show

import (
	"cmp"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Owner is what metadata tells about who holds a lock, safe to print; "" for what it does not tell.
type Owner struct {
	Who     string // user@host, or one of them, or metadata that is not a JSON object
	PID     string
	Command string
	Since   time.Time // when the lock was acquired, by the clock of that host
}

// OwnerOf reads metadata that run or redislock.ProcessMetadata has written, or anything like it.
func OwnerOf(metadata string) Owner {
	fields, isObject := Fields(metadata)
	if !isObject {
		return Owner{Who: term.Escape(metadata)}
	}
	field := func(name string) string { return term.Escape(Value(fields, name)) }
	o := Owner{PID: field("pid"), Command: cmp.Or(field("command"), field("program")), Who: field("host")}
	switch user := field("user"); {
	case user != "" && o.Who != "":
		o.Who = user + "@" + o.Who
	case user != "":
		o.Who = user
	}
	for _, name := range []string{"obtained", "since", "now"} { // ProcessMetadata calls it now
		if since, err := time.Parse(time.RFC3339Nano, Value(fields, name)); err == nil {
			o.Since = since
			break
		}
	}
	return o
}
