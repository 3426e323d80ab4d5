package tree

import (
	"cmp"
	"encoding/json"
	"time"
)

// Owner is what metadata tells about who holds a lock or waits for one: what [redislock.ProcessMetadata] or redislock run
// has written, or anything like it. Fields are "" or zero for what it does not tell. The text is not safe to print.
type Owner struct {
	User, Host, PID string
	Command         string    // or else the program
	Since           time.Time // when the lock was acquired, by the clock of that host
}

// Name returns user@host, or the one of them that is known.
func (o *Owner) Name() string {
	if o.User != "" && o.Host != "" {
		return o.User + "@" + o.Host
	}
	return cmp.Or(o.User, o.Host)
}

// OwnerOf reads metadata. ok is false if it is not a JSON object.
func OwnerOf(metadata string) (o Owner, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(metadata), &fields) != nil || fields == nil {
		return Owner{}, false
	}
	field := func(name string) string {
		var text string
		if json.Unmarshal(fields[name], &text) != nil {
			return string(fields[name]) // a number
		}
		return text
	}
	o = Owner{
		User: field("user"), Host: field("host"), PID: field("pid"), Command: cmp.Or(field("command"), field("program")),
	}
	for _, name := range []string{"obtained", "since", "now"} { // ProcessMetadata calls it now
		if since, err := time.Parse(time.RFC3339Nano, field(name)); err == nil {
			o.Since = since
			break
		}
	}
	return o, true
}
