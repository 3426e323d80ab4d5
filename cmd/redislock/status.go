package main

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redislock/redislock"
)

// status is what a key holds, as far as it was read.
type status struct {
	redislock.Status

	cut bool // the metadata goes on; who waits is not known, for the library would have read all of it
}

// maxValue is how much of a value is read. A lock's is seldom longer, and another value may have any length.
const maxValue = 4 << 10

// cutStatus returns the status of a key of which only the beginning was read.
func cutStatus(key, value string, ttl time.Duration) status {
	for range utf8.UTFMax { // no character is cut in two
		if r, size := utf8.DecodeLastRuneInString(value); r != utf8.RuneError || size != 1 {
			break
		}
		value = value[:len(value)-1]
	}
	s := status{Status: redislock.Status{Key: key, TTL: ttl}, cut: true}
	s.Token, s.Metadata, _ = strings.Cut(value, " ")
	return s
}

// statusJSON is a status in JSON. What is not UTF-8 has replacement characters, and stands beside that in base64.
type statusJSON struct {
	At             string          `json:"at,omitempty"` // of a live view: when it was looked at
	Key            string          `json:"key"`
	KeyBase64      string          `json:"key_base64,omitempty"`
	Token          string          `json:"token"`
	TokenBase64    string          `json:"token_base64,omitempty"`
	Metadata       string          `json:"metadata"`
	MetadataBase64 string          `json:"metadata_base64,omitempty"`
	MetadataCut    bool            `json:"metadata_cut,omitempty"`
	Fields         json.RawMessage `json:"fields,omitempty"` // the metadata, if it is an object
	TTL            *int64          `json:"ttl_ms"`           // null for a key without expiry, 0 for a free one
	Waiters        *int            `json:"waiters"`          // null where that is not known
	WaitingSince   *time.Time      `json:"waiting_since,omitempty"`
}

func (s status) json() statusJSON {
	j := statusJSON{
		Key: s.Key, KeyBase64: inBase64(s.Key), Token: s.Token, TokenBase64: inBase64(s.Token),
		Metadata: s.Metadata, MetadataBase64: inBase64(s.Metadata), MetadataCut: s.cut,
	}
	if _, ok := fieldsOf(s.Metadata); ok {
		j.Fields = json.RawMessage(s.Metadata)
	}
	if s.TTL >= 0 {
		left := s.TTL.Milliseconds()
		j.TTL = &left
	}
	if !s.cut {
		j.Waiters = &s.Waiters
	}
	if !s.WaitingSince.IsZero() {
		since := s.WaitingSince.UTC()
		j.WaitingSince = &since
	}
	return j
}
