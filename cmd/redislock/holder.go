package main

import (
	"fmt"
	"strings"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// holderOf says in a few words who holds a key: what the metadata tells, or else the token.
func holderOf(s redislock.Status) string {
	var who strings.Builder
	fields, _ := fieldsOf(s.Metadata)
	host, pid := valueOf(fields, "host"), valueOf(fields, "pid")
	user, command := valueOf(fields, "user"), valueOf(fields, "command")
	switch {
	case host != "" && pid != "":
		if user != "" {
			who.WriteString(term.Escape(user) + " on ")
		}
		fmt.Fprintf(&who, "%s, pid %s", term.Escape(host), term.Escape(pid))
		if command != "" {
			fmt.Fprintf(&who, " (%s)", term.Shorten(term.Escape(command), 60))
		}
	case s.Metadata != "":
		who.WriteString(term.Shorten(showMetadata(s.Metadata), 100))
	case s.Token != "":
		who.WriteString(term.Shorten(term.Escape(s.Token), 60))
	default:
		who.WriteString("something that is no lock")
	}
	switch {
	case s.TTL < 0:
		who.WriteString(", without an expiry")
	case s.TTL > 0:
		fmt.Fprintf(&who, ", for %s more", readable(s.TTL))
	}
	if s.Waiters > 0 {
		fmt.Fprintf(&who, "; %d in line", s.Waiters)
	}
	return who.String()
}
