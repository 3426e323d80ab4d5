package scan

import (
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/keyname"
)

// Filter says which keys are wanted.
type Filter struct {
	All     bool     // every string, not only what looks like a lock
	Token   string   // how the token begins
	Meta    []string // NAME=VALUE or a part of the text; all must be there
	Waiting bool     // only keys that somebody waits for
}

// mayBe reports whether a key may be wanted, by the beginning of its value, of keyname.TokenLength+1 bytes.
func (f *Filter) mayBe(v value) bool {
	if v.key == "" || strings.HasSuffix(v.key, keyname.LineSuffix) {
		return false // no lock can have that name
	}
	if !f.All && (v.ttl < 0 || !keyname.BeginsLikeToken(v.text)) {
		return false
	}
	length := min(len(f.Token), len(v.text))
	return f.Token[:length] == v.text[:length]
}

// wants reports whether a key is wanted, regardless of its waiters.
func (f *Filter) wants(s show.Status) bool {
	switch {
	case s.TTL == 0, !f.All && s.TTL < 0, !strings.HasPrefix(s.Token, f.Token):
		return false
	case !f.All && !keyname.BeginsLikeToken(s.Token): // it has changed since the first look
		return false
	}
	for _, wanted := range f.Meta {
		if !hasMeta(s.Metadata, wanted) {
			return false
		}
	}
	return true
}

// wantsSplit reports whether a key is wanted that no majority of a quorum holds, although some servers do.
func (f *Filter) wantsSplit(s show.Status) bool {
	if s.Token != "" || s.TTL != 0 || len(f.Meta) > 0 {
		return false
	}
	for _, place := range s.Places {
		if place.Token != "" && strings.HasPrefix(place.Token, f.Token) && (f.All || keyname.BeginsLikeToken(place.Token)) {
			return true
		}
	}
	return false
}

// hasMeta reports whether metadata has a field as in NAME=VALUE, or the whole of wanted somewhere in its text.
func hasMeta(metadata, wanted string) bool {
	if name, value, ok := strings.Cut(wanted, "="); ok {
		fields, _ := show.Fields(metadata)
		for _, f := range fields {
			if f.Name == name && f.Value == value {
				return true
			}
		}
	}
	return strings.Contains(metadata, wanted)
}
