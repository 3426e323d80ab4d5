// Package show shows locks to people and to programs: who holds a key, for how long, and what the holder left as metadata.
// It knows what the library reports, and nothing of Redis or of any command.
package show

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/words"
)

// StatusJSON is a status in JSON. Text that is not UTF-8 has replacement characters, and is repeated in base64.
type StatusJSON struct {
	At             string          `json:"at,omitempty"` // with --watch: when this was seen
	Key            string          `json:"key"`
	KeyBase64      string          `json:"key_base64,omitempty"`
	Token          string          `json:"token"`
	TokenBase64    string          `json:"token_base64,omitempty"`
	Metadata       string          `json:"metadata"`
	MetadataBase64 string          `json:"metadata_base64,omitempty"`
	MetadataCut    bool            `json:"metadata_cut,omitempty"`
	Fields         json.RawMessage `json:"fields,omitempty"` // the metadata, if it is an object
	TTL            *int64          `json:"ttl_ms"`           // null for a key without expiry, 0 for a free one
	Waiters        *int            `json:"waiters"`          // null if unknown
	WaitingSince   *time.Time      `json:"waiting_since,omitempty"`
	HeldSince      *time.Time      `json:"held_since,omitempty"` // if the metadata says so
	Waits          []string        `json:"waits,omitempty"`      // for which keys the holder waits itself, if that is known
	Holders        []HolderJSON    `json:"holders,omitempty"`    // of a shared key, at most 100
	HolderCount    int             `json:"holder_count,omitempty"`
	Limit          *int            `json:"limit,omitempty"`  // the least limit of the holders of a shared key; 0 for none
	Places         []PlaceJSON     `json:"places,omitempty"` // where the servers of a quorum disagree
}

// PlaceJSON is what one server of a quorum holds, in JSON.
type PlaceJSON struct {
	Server string `json:"server"`
	Token  string `json:"token"`
	TTL    *int64 `json:"ttl_ms"` // as in StatusJSON
}

// JSONOf returns the status as JSON has it.
func JSONOf(s survey.Status) StatusJSON {
	j := StatusJSON{
		Key: s.Key, KeyBase64: InBase64(s.Key), Token: s.Token, TokenBase64: InBase64(s.Token),
		Metadata: s.Metadata, MetadataBase64: InBase64(s.Metadata), MetadataCut: s.Cut,
	}
	if _, ok := words.Fields(s.Metadata); ok {
		j.Fields = json.RawMessage(s.Metadata)
	}
	if s.TTL >= 0 {
		j.TTL = new(s.TTL.Milliseconds())
	}
	if !s.Cut {
		j.Waiters = &s.Waiters
	}
	if since := OwnerOf(s.Metadata).Since; !since.IsZero() {
		j.HeldSince = new(since.UTC())
	}
	if !s.WaitingSince.IsZero() {
		j.WaitingSince = new(s.WaitingSince.UTC())
	}
	j.Waits = s.Waits
	j.addHolders(s.Status)
	for _, place := range s.Places {
		p := PlaceJSON{Server: place.Server, Token: place.Token}
		if place.TTL >= 0 {
			p.TTL = new(place.TTL.Milliseconds())
		}
		j.Places = append(j.Places, p)
	}
	return j
}

// WriteJSON prints a value as one line of JSON that is safe on a terminal: invisible characters, and those that change the
// direction of text, are written as \u and four digits.
func WriteJSON(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	var out []byte
	for _, r := range text.String() { // JSON is UTF-8
		if words.Visible(r) || r == '\n' { // the end of the line
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) { // JSON has surrogates only
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	_, err := w.Write(out)
	return err
}

// InBase64 returns in base64 what JSON cannot hold: text that is not UTF-8. For other text it returns "".
func InBase64(text string) string {
	if utf8.ValidString(text) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}
