package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/tree"
)

// Who says in a few words who has a token: what the metadata says, or else the token.
func Who(token, metadata string) string {
	token, metadata = apart(token, metadata)
	o := OwnerOf(metadata)
	switch {
	case o.Who != "" && o.PID != "" && o.Command != "":
		return fmt.Sprintf("%s, pid %s (%s)", o.Who, o.PID, term.Shorten(o.Command, 60))
	case o.Who != "" && o.PID != "":
		return fmt.Sprintf("%s, pid %s", o.Who, o.PID)
	case Metadata(metadata) != "":
		return term.Shorten(Metadata(metadata), 100)
	case token != "":
		return term.Shorten(term.Escape(token), 60)
	}
	return "something that is not a lock"
}

// ShortToken returns the first characters of a token, safe to print. It never returns the whole token, with which anybody
// can release the lock.
func ShortToken(token string) string {
	short := fault.Short(token)
	if short == token {
		characters := []rune(token)
		short = string(characters[:len(characters)/2]) + "…"
	}
	return term.Escape(short)
}

// Split says in a few words that no majority of a quorum holds a key, although some servers do; "" if that is not so.
func Split(s redislock.Status) string {
	if s.Token != "" || s.TTL != 0 {
		return ""
	}
	tokens, held := map[string]bool{}, 0
	for _, place := range s.Places {
		if place.TTL != 0 {
			tokens[place.Token] = true
			held++
		}
	}
	switch {
	case held == 0:
		return ""
	case len(tokens) == 1:
		return fmt.Sprintf("no majority: on %d of %d servers", held, len(s.Places))
	}
	return fmt.Sprintf("no majority: %d holders on %d of %d servers", len(tokens), held, len(s.Places))
}

// Holder says in a few words who holds a key, for how long, and how many wait for it.
func Holder(s redislock.Status) string {
	who := Who(s.Token, s.Metadata) + more(s.HolderCount) + left(s.TTL)
	if s.Waiters == 0 {
		return who
	}
	return who + fmt.Sprintf("; %d in line", s.Waiters)
}

// Closed says that the guard is closed, and for how much longer.
func Closed(left time.Duration) string {
	return "the guard is closed for another " + Duration(left) + ", because Redis may have forgotten locks"
}

// InTheWay says who, or what, is in the way of a caller that is refused a lock.
func InTheWay(e *redislock.RefusedError) string {
	if e.Closed > 0 {
		return Closed(e.Closed)
	}
	who, free := "held by "+Who(e.Token, e.Metadata)+more(e.Holders)+left(e.TTL), e.Token == "" && e.TTL == 0
	if free {
		who = "it is the turn of others"
	}
	switch {
	case e.Ahead > 0:
		who += fmt.Sprintf("; %d ahead of you", e.Ahead)
	case free:
		who += " in line"
	}
	return who
}

// Blocker says in a few words which key is in the way and who holds it, and how long ago it was renewed. A negative renewed
// means that nobody has seen a renewal: then it says what remains of the ttl. passed is the time since the ttl was read.
func Blocker(e *redislock.RefusedError, renewed, passed time.Duration) string {
	text := term.Escape(e.Key) + ": "
	switch {
	case e.Token == "" && e.TTL == 0:
		return text + "it is the turn of others in line"
	case e.Token == "":
		return text + "something that is not a lock"
	}
	token, metadata := apart(e.Token, e.Metadata)
	if who := cmp.Or(OwnerOf(metadata).Who, Metadata(metadata)); who != "" {
		text += who + " "
	}
	text += term.Escape(fault.Short(token)) + more(e.Holders)
	switch {
	case renewed >= 0:
		return text + ", renewed " + Seconds(renewed) + " ago"
	case e.TTL > 0:
		return text + left(max(e.TTL-passed, time.Millisecond))
	}
	return text + left(e.TTL)
}

// left says what remains of a ttl as in [redislock.Status].
func left(ttl time.Duration) string {
	switch {
	case ttl < 0:
		return ", without an expiry"
	case ttl > 0:
		return ", " + Duration(ttl) + " left"
	}
	return ""
}

// Owner is what metadata tells about who holds a lock, safe to print; "" for what it does not tell.
type Owner struct {
	Who          string // user@host, or one of them, or metadata that is not a JSON object
	PID, Command string
	Since        time.Time // when the lock was acquired, by the clock of that host
}

// OwnerOf reads metadata that run or redislock.ProcessMetadata has written, or anything like it.
func OwnerOf(metadata string) Owner {
	found, isObject := tree.OwnerOf(metadata)
	if !isObject {
		return Owner{Who: term.Escape(metadata)}
	}
	user, host := term.Escape(found.User), term.Escape(found.Host)
	o := Owner{
		Who: cmp.Or(user, host), PID: term.Escape(found.PID), Command: term.Escape(found.Command), Since: found.Since,
	}
	if user != "" && host != "" {
		o.Who = user + "@" + host
	}
	return o
}

// Duration writes a duration in two units at most, rounded down: 850ms, 9.8s, 42s, 4m12s, 2h03m, 3d04h.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// Seconds is Duration without parts of a second.
func Seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return Duration(d)
}

// TTL writes the remaining ttl of a key, as in [redislock.Status].
func TTL(ttl time.Duration) string {
	if ttl < 0 {
		return "none"
	}
	return Duration(ttl)
}

// Field is one member of a JSON object that a holder left as metadata.
type Field struct {
	Name  string
	Value string // the text of a string; the JSON of anything else
}

// Fields returns the members of metadata that is a JSON object, in their order. For other metadata, ok is false.
func Fields(metadata string) (fields []Field, ok bool) {
	if !strings.HasPrefix(strings.TrimLeft(metadata, " \t\r\n"), "{") || !json.Valid([]byte(metadata)) {
		return nil, false
	}
	decoder := json.NewDecoder(strings.NewReader(metadata))
	_, _ = decoder.Token()
	for decoder.More() { // it is valid, so nothing fails
		name, _ := decoder.Token()
		var raw json.RawMessage
		_ = decoder.Decode(&raw)
		f := Field{Name: name.(string), Value: string(raw)}
		if raw[0] == '"' {
			_ = json.Unmarshal(raw, &f.Value)
		}
		fields = append(fields, f)
	}
	return fields, true
}

// Value returns the value of a field, or "" if there is no such field.
func Value(fields []Field, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Metadata writes metadata on one line: an object as name=value, anything else unchanged.
func Metadata(metadata string) string {
	fields, ok := Fields(metadata)
	if !ok {
		return term.Escape(metadata)
	}
	shown := make([]string, len(fields))
	for i, f := range fields {
		value := term.Escape(f.Value)
		if value == "" || strings.ContainsAny(value, ` ="`) && value[0] != '{' && value[0] != '[' {
			value = `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
		}
		shown[i] = term.Escape(f.Name) + "=" + value
	}
	return strings.Join(shown, " ")
}
