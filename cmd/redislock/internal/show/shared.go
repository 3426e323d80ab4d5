package show

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/words"
)

// LimitOf returns the least limit that the holders of a key have set; 0 if none has.
func LimitOf(s redislock.Status) (least int) {
	for _, h := range s.Holders {
		least = Stricter(least, h.Limit)
	}
	return least
}

// Stricter returns the smaller of two limits; 0 is none.
func Stricter(a, b int) int {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Count says how many hold a shared key, and how many may: "3 holders", "2 of 4 holders". For an exclusive key it is "".
func Count(s redislock.Status) string {
	limit := LimitOf(s)
	switch {
	case s.HolderCount == 0:
		return ""
	case limit > 0:
		return fmt.Sprintf("%d of %d holders", s.HolderCount, limit)
	case s.HolderCount == 1:
		return "1 holder"
	}
	return fmt.Sprintf("%d holders", s.HolderCount)
}

// more says how many hold a shared key beside one of its holders.
func more(holders int) string {
	if holders < 2 {
		return ""
	}
	return fmt.Sprintf(" and %d more", holders-1)
}

// Sharer says in a few words who is one of the holders of a shared key: its token, who that is, since when and until when it
// holds the key, and how many holders it lets the key have.
func Sharer(h redislock.Holder) string {
	parts := []string{words.Escape(h.Token)}
	if words.Metadata(h.Metadata) != "" {
		parts[0] += ": " + Who("", h.Metadata)
	}
	if since := OwnerOf(h.Metadata).Since; !since.IsZero() {
		parts = append(parts, "held for "+words.Duration(max(time.Since(since), 0)))
	}
	parts = append(parts, TTL(h.TTL)+" left")
	if h.Limit > 0 {
		parts = append(parts, fmt.Sprintf("at most %d holders", h.Limit))
	}
	return strings.Join(parts, ", ")
}

// HolderJSON is one of the holders of a shared key, in JSON.
type HolderJSON struct {
	Token          string          `json:"token"`
	TokenBase64    string          `json:"token_base64,omitempty"`
	Metadata       string          `json:"metadata"`
	MetadataBase64 string          `json:"metadata_base64,omitempty"`
	Fields         json.RawMessage `json:"fields,omitempty"` // as in StatusJSON
	TTL            int64           `json:"ttl_ms"`
	Limit          int             `json:"limit"` // how many holders it lets the key have; 0 for no limit
	HeldSince      *time.Time      `json:"held_since,omitempty"`
}

// addHolders adds those who share a key, if there are any.
func (j *StatusJSON) addHolders(s redislock.Status) {
	if s.HolderCount == 0 {
		return
	}
	j.HolderCount, j.Limit = s.HolderCount, new(LimitOf(s))
	for _, h := range s.Holders {
		one := HolderJSON{
			Token: h.Token, TokenBase64: InBase64(h.Token), Metadata: h.Metadata, MetadataBase64: InBase64(h.Metadata),
			TTL: h.TTL.Milliseconds(), Limit: h.Limit,
		}
		if _, ok := words.Fields(h.Metadata); ok {
			one.Fields = json.RawMessage(h.Metadata)
		}
		if since := OwnerOf(h.Metadata).Since; !since.IsZero() {
			one.HeldSince = new(since.UTC())
		}
		j.Holders = append(j.Holders, one)
	}
}
