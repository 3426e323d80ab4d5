package place

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/redislock/redislock/internal/keyname"
)

// NewToken returns 128 random bits as 22 characters. In practice, no two tokens are ever alike.
func NewToken() string {
	var random [keyname.TokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program first
	return base64.RawURLEncoding.EncodeToString(random[:])
}
