package survey

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
)

// Status is what a key holds, as far as it was read.
type Status struct {
	redislock.Status

	Cut bool // only the beginning was read, so the waiters are unknown: the library would read all of it
}

// StatusOf returns the status of a key that holds a value.
func StatusOf(key, value string, ttl time.Duration) Status {
	token, metadata, _ := strings.Cut(value, " ")
	return Status{Status: Read(redislock.Status{Key: key, TTL: ttl, Token: token, Metadata: metadata})}
}

// CutStatus returns the status of a key of whose value only the beginning was read.
func CutStatus(key, value string, ttl time.Duration) Status {
	for range utf8.UTFMax { // do not cut a character in two
		if r, size := utf8.DecodeLastRuneInString(value); r != utf8.RuneError || size != 1 {
			break
		}
		value = value[:len(value)-1]
	}
	s := StatusOf(key, value, ttl)
	s.Cut = true
	return s
}

// Read returns the status with the token and the metadata as their holder knows them. The library cuts a value at its first
// space. A value of bsm/redislock has no space there, so the library counts metadata as a part of the token.
func Read(s redislock.Status) redislock.Status {
	if len(s.Holders) == 0 { // no other library shares a key
		s.Token, s.Metadata = Apart(s.Token, s.Metadata)
	}
	return s
}

// Apart returns a token and metadata as their holder knows them, of those that the library has read; see Read.
func Apart(token, metadata string) (string, string) {
	own, ok := keyname.BSMToken(token)
	if !ok {
		return token, metadata
	}
	if rest := strings.TrimPrefix(token, own); metadata == "" {
		metadata = rest
	} else {
		metadata = rest + " " + metadata
	}
	return own, metadata
}
