package ls

import (
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/keyname"
)

// lsFilter says which keys are shown.
type lsFilter struct {
	all     bool
	holder  string   // how the token begins
	meta    []string // NAME=VALUE or a part of the text; all must be there
	waiting bool
}

// mayBe reports whether a key may be one to show, by the beginning of its value, of keyname.TokenLength+1 bytes.
func (f *lsFilter) mayBe(s show.Status, beginning string) bool {
	if s.Key == "" || strings.HasSuffix(s.Key, keyname.LineSuffix) {
		return false // no lock can have that name
	}
	if !f.all && (s.TTL < 0 || !keyname.BeginsLikeToken(beginning)) {
		return false
	}
	length := min(len(f.holder), len(beginning))
	return f.holder[:length] == beginning[:length]
}

// wants reports whether a key is to be shown.
func (f *lsFilter) wants(s show.Status) bool {
	switch {
	case s.TTL == 0, !f.all && s.TTL < 0, f.waiting && s.Waiters == 0, !strings.HasPrefix(s.Token, f.holder):
		return false
	case !f.all && !keyname.BeginsLikeToken(s.Token): // it has changed since the first look
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
		fields, _ := show.Fields(metadata)
		for _, f := range fields {
			if f.Name == name && f.Value == value {
				return true
			}
		}
	}
	return strings.Contains(metadata, wanted)
}
