package script

import (
	"strconv"
	"strings"
)

// Holding is a lock that a waiter's caller holds while it waits.
type Holding struct {
	Token string
	Keys  []string
	More  bool // it has more keys
}

// Names are what an entry in line names: the keys that its waiter wants, and the locks that its caller holds meanwhile. A
// waiter for one key whose caller holds nothing names nothing.
type Names struct {
	Wants []string // nil if the waiter wants more keys than an entry names
	Holds []Holding
	More  bool // it holds more
}

const (
	// maxNamed is how many keys an entry names of those that its waiter wants, and of each lock that its caller holds. A waiter
	// whose caller holds nothing names no more than maxIdle: each name stands in the line of each key.
	maxNamed = 16
	maxIdle  = 4

	// maxNames is how many bytes the names in an entry take. A waiter has an entry in the line of each of its keys.
	maxNames = 1024
)

// WriteNames returns the names of a waiter as they stand in its entry; "" for a waiter that names nothing. Without wants, it
// returns only those of the locks.
//
// Each name is a letter, a length, a colon and the name: w for a key that the waiter wants, h for the token of a lock that
// its caller holds, and k for a key of that lock. A "+" says that there are more of the keys before it, and a "*" at the end
// that the caller holds more locks.
func WriteNames(wants []string, holds []Holding) string {
	if len(wants) == 1 && len(holds) == 0 {
		return ""
	}
	var text []byte
	room := func(size int) bool { return len(text)+size+2 <= maxNames } // and a "+" and a "*"
	add := func(kind byte, name string) {
		text = strconv.AppendInt(append(text, kind), int64(len(name)), 10)
		text = append(append(text, ':'), name...)
	}
	size := 0
	for _, key := range wants {
		size += len(key) + len("w1234:")
	}
	switch {
	case len(wants) == 1: // the line says it
	case len(wants) > maxNamed, len(holds) == 0 && len(wants) > maxIdle, !room(size):
		text = append(text, '+')
	default:
		for _, key := range wants {
			add('w', key)
		}
	}
	for _, lock := range holds {
		if !room(len(lock.Token) + len("h1234:")) {
			return string(append(text, '*'))
		}
		add('h', lock.Token)
		named := 0
		for named < min(len(lock.Keys), maxNamed) && room(len(lock.Keys[named])+len("k1234:")) {
			add('k', lock.Keys[named])
			named++
		}
		if lock.More || named < len(lock.Keys) {
			text = append(text, '+')
		}
	}
	return string(text)
}

// writeWants returns the first of some keys as names: what a caller waits for that has locks. A "+" says that there are
// more.
func writeWants(keys []string) string {
	var text []byte
	for i, key := range keys {
		if i == maxIdle || len(text)+len(key) > maxNames/4 {
			return string(append(text, '+'))
		}
		text = strconv.AppendInt(append(text, 'w'), int64(len(key)), 10)
		text = append(append(text, ':'), key...)
	}
	return string(text)
}

// readWants reads the keys that writeWants has written; nil for "".
func readWants(text string) []string {
	if text == "" {
		return nil
	}
	return readNames(text, "").Wants
}

// ReadHoldings reads the locks that WriteNames has written.
func ReadHoldings(text string) []Holding { return readNames(text, "").Holds }

// readNames reads the names in the entry of a waiter in the line of a key.
func readNames(text, key string) (n Names) {
	unnamed := false
	for text != "" {
		kind := text[0]
		text = text[1:]
		switch {
		case kind == '*':
			n.More = true
			continue
		case kind == '+' && len(n.Holds) == 0:
			unnamed = true
			continue
		case kind == '+':
			n.Holds[len(n.Holds)-1].More = true
			continue
		}
		digits, rest, _ := strings.Cut(text, ":")
		length, err := strconv.Atoi(digits)
		if err != nil || length < 0 || length > len(rest) {
			return n // no waiter of this version has written this
		}
		name := rest[:length]
		text = rest[length:]
		switch {
		case kind == 'w':
			n.Wants = append(n.Wants, name)
		case kind == 'h':
			n.Holds = append(n.Holds, Holding{Token: name})
		case kind == 'k' && len(n.Holds) > 0:
			lock := &n.Holds[len(n.Holds)-1]
			lock.Keys = append(lock.Keys, name)
		}
	}
	if n.Wants == nil && !unnamed {
		n.Wants = []string{key}
	}
	return n
}
