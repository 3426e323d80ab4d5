package main

import (
	"strings"
)

const (
	// tokenLength is that of the tokens which the library makes: 16 bytes in base64url.
	tokenLength = 22

	// lineSuffix ends the names of the keys in which the library keeps its lines.
	lineSuffix = ":redislock:line"
)

// beginsLikeToken reports whether a value begins like one of a lock with a token of the library's own: with 22 base64url
// characters, and then its end or a space.
func beginsLikeToken(value string) bool {
	if len(value) < tokenLength || len(value) > tokenLength && value[tokenLength] != ' ' {
		return false
	}
	for i := range tokenLength {
		c := value[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// lsFilter says which keys are shown.
type lsFilter struct {
	all     bool
	holder  string   // how the token begins
	meta    []string // NAME=VALUE or a part of the text; each has to be there
	waiting bool
}

// mayBe reports whether a key may be one to show, by the beginning of its value, of tokenLength+1 bytes.
func (f *lsFilter) mayBe(s status, beginning string) bool {
	if s.Key == "" || strings.HasSuffix(s.Key, lineSuffix) {
		return false // no lock can have that name
	}
	if !f.all && (s.TTL < 0 || !beginsLikeToken(beginning)) {
		return false
	}
	length := min(len(f.holder), len(beginning))
	return f.holder[:length] == beginning[:length]
}

// wants reports whether a key is to be shown.
func (f *lsFilter) wants(s status) bool {
	switch {
	case s.TTL == 0, !f.all && s.TTL < 0, f.waiting && s.Waiters == 0, !strings.HasPrefix(s.Token, f.holder):
		return false
	case !f.all && !beginsLikeToken(s.Token): // it has changed since it was looked at first
		return false
	}
	for _, wanted := range f.meta {
		if !hasMeta(s.Metadata, wanted) {
			return false
		}
	}
	return true
}

// hasMeta reports whether metadata has a field as in NAME=VALUE, or the whole of wanted somewhere in its text.
func hasMeta(metadata, wanted string) bool {
	if name, value, ok := strings.Cut(wanted, "="); ok {
		fields, _ := fieldsOf(metadata)
		for _, f := range fields {
			if f.name == name && f.value == value {
				return true
			}
		}
	}
	return strings.Contains(metadata, wanted)
}
