package keyname

import "strings"

const (
	// TokenBytes is the number of random bytes in a token that the library makes.
	TokenBytes = 16

	// TokenLength is the number of characters of such a token: base64url without padding, 6 bits per character.
	TokenLength = (TokenBytes*8 + 5) / 6

	// TokenBeginning is how many bytes of a value BeginsLikeToken looks at: a token, the padding, and what follows.
	TokenBeginning = TokenLength + 3

	// redsyncPadding ends the values of redsync: the same number of random bytes, in base64 with padding.
	redsyncPadding = "=="
)

// BeginsLikeToken reports whether a value begins like that of a lock with a random token, from this library or another one:
//
//	q83vEjRWeJCrze8SNFZ4kA           this library; bsm/redislock
//	q83vEjRWeJCrze8SNFZ4kA text      this library, with metadata
//	q83vEjRWeJCrze8SNFZ4kA{"a":1}    bsm/redislock, with metadata: see [BSMToken]
//	q83vEjRWeJCrze8SNFZ/kA==         redsync
func BeginsLikeToken(value string) bool {
	if len(value) < TokenLength {
		return false
	}
	token, rest := value[:TokenLength], value[TokenLength:]
	if isBase64(token, "-_") && (rest == "" || rest[0] == ' ') {
		return true
	}
	_, isBSM := BSMToken(value)
	return isBSM || rest == redsyncPadding && isBase64(token, "+/") && endsBytes(token)
}

// BSMToken returns the token of a value that bsm/redislock has written with metadata. That library writes nothing between
// the two. So BSMToken knows such a value only if the metadata begins with a character that a token cannot have, such as a
// brace.
func BSMToken(value string) (token string, ok bool) {
	if len(value) <= TokenLength || !isBase64(value[:TokenLength], "-_") || !endsBytes(value[:TokenLength]) {
		return "", false
	}
	if first := value[TokenLength]; first == ' ' || first == '=' || isBase64(string(first), "-_") {
		return "", false
	}
	return value[:TokenLength], true
}

// isBase64 reports whether all characters of text are letters, digits, or one of others.
func isBase64(text, others string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// endsBytes reports whether the last character of text can end TokenBytes bytes: it stands for two bits, and four zeros.
func endsBytes(text string) bool { return strings.IndexByte("AQgw", text[len(text)-1]) >= 0 }
