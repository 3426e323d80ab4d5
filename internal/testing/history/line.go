package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Append appends the event to b, as one line. No text in an event may hold a space, a comma, a semicolon or a line break.
func (e *Event) Append(b []byte) []byte {
	b = append(b, e.Kind...)
	b = number(b, "at", e.At)
	b = text(b, "worker", e.Worker)
	b = text(b, "op", e.Op)
	b = text(b, "keys", strings.Join(e.Keys, ","))
	for i, n := range e.Holders {
		if i == 0 {
			b = append(b, " holders="...)
		} else {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	b = text(b, "under", strings.Join(e.Under, ","))
	b = text(b, "token", e.Token)
	b = text(b, "fencekey", e.FenceKey)
	b = number(b, "fence", e.Fence)
	b = number(b, "start", e.Start)
	b = number(b, "refused", e.Refused)
	b = number(b, "limit", e.Limit)
	b = number(b, "until", e.Until)
	b = number(b, "bound", e.Bound)
	b = number(b, "end", e.End)
	b = number(b, "ttl", int64(e.TTL))
	b = number(b, "left", int64(e.Left))
	b = number(b, "grace", int64(e.Grace))
	b = number(b, "need", e.Need)
	b = text(b, "name", e.Name)
	b = text(b, "outcome", e.Outcome)
	b = text(b, "options", strings.Join(e.Options, ","))
	b = text(b, "target", e.Target)
	b = flag(b, "queue", e.Queue)
	b = flag(b, "custom", e.Custom)
	b = flag(b, "lost", e.Lost)
	b = flag(b, "lossy", e.Lossy)
	b = flag(b, "fresh", e.Fresh)
	b = flag(b, "exact", e.Exact)
	for i, h := range e.Held {
		if i == 0 {
			b = append(b, " held="...)
		} else {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%s;%s;%d;%d;%s", h.Key, h.Owner, int64(h.TTL), h.Server, h.Token)
	}
	return append(b, '\n')
}

// String returns the event as one line, without its end.
func (e *Event) String() string { return strings.TrimSuffix(string(e.Append(nil)), "\n") }

func text(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return append(append(append(append(b, ' '), name...), '='), value...)
}

func number(b []byte, name string, value int64) []byte {
	if value == 0 {
		return b
	}
	return strconv.AppendInt(append(append(append(b, ' '), name...), '='), value, 10)
}

func flag(b []byte, name string, value bool) []byte {
	if !value {
		return b
	}
	return append(append(b, ' '), name...)
}

// Parse returns the event of a line without its end.
func Parse(line string) (Event, error) {
	kind, rest, _ := strings.Cut(line, " ")
	e := Event{Kind: Kind(kind)}
	numbers := map[string]*int64{
		"at": &e.At, "fence": &e.Fence, "start": &e.Start, "refused": &e.Refused, "limit": &e.Limit,
		"until": &e.Until, "bound": &e.Bound, "end": &e.End, "need": &e.Need,
	}
	texts := map[string]*string{
		"worker": &e.Worker, "op": &e.Op, "token": &e.Token, "fencekey": &e.FenceKey, "name": &e.Name,
		"outcome": &e.Outcome, "target": &e.Target,
	}
	flags := map[string]*bool{
		"queue": &e.Queue, "custom": &e.Custom, "lost": &e.Lost, "lossy": &e.Lossy, "fresh": &e.Fresh, "exact": &e.Exact,
	}
	durations := map[string]*time.Duration{"ttl": &e.TTL, "left": &e.Left, "grace": &e.Grace}
	for field := range strings.FieldsSeq(rest) {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch {
		case numbers[name] != nil:
			*numbers[name], err = strconv.ParseInt(value, 10, 64)
		case texts[name] != nil:
			*texts[name] = value
		case flags[name] != nil:
			*flags[name] = true
		case durations[name] != nil:
			var n int64
			n, err = strconv.ParseInt(value, 10, 64)
			*durations[name] = time.Duration(n)
		case name == "keys":
			e.Keys = strings.Split(value, ",")
		case name == "holders":
			e.Holders, err = parseNumbers(value)
		case name == "under":
			e.Under = strings.Split(value, ",")
		case name == "options":
			e.Options = strings.Split(value, ",")
		case name == "held":
			e.Held, err = parseHeld(value)
		default:
			err = fmt.Errorf("unknown field %q", name)
		}
		if err != nil {
			return Event{}, fmt.Errorf("history: %q: %w", line, err)
		}
	}
	if e.At == 0 {
		return Event{}, fmt.Errorf("history: %q has no time", line)
	}
	return e, nil
}

func parseNumbers(list string) (all []int64, err error) {
	for entry := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(entry, 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

func parseHeld(list string) ([]Held, error) {
	var all []Held
	for entry := range strings.SplitSeq(list, ",") {
		parts := strings.Split(entry, ";")
		if len(parts) != 5 {
			return nil, fmt.Errorf("held key %q", entry)
		}
		left, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return nil, err
		}
		server, err := strconv.Atoi(parts[3])
		if err != nil {
			return nil, err
		}
		all = append(all, Held{Key: parts[0], Owner: parts[1], TTL: time.Duration(left), Server: server, Token: parts[4]})
	}
	return all, nil
}
