package keyname_test

import (
	"testing"
	"time"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/redislocktest"
)

func TestBeginsLikeToken(t *testing.T) {
	for name, test := range map[string]struct {
		value string
		want  bool
	}{
		"a token":                          {"q83vEjRWeJCrze8SNFZ4kA", true},
		"a token with metadata":            {"q83vEjRWeJCrze8SNFZ4k_ x", true},
		"a token and a space":              {"q83vEjRWeJCrze8SNFZ4k- ", true},
		"one character less":               {"q83vEjRWeJCrze8SNFZ4k", false},
		"one more":                         {"q83vEjRWeJCrze8SNFZ4kAA", false},
		"of bsm, with an object":           {`q83vEjRWeJCrze8SNFZ4kA{"host":"api-3"}`, true},
		"of bsm, with other text":          {"q83vEjRWeJCrze8SNFZ4kg/var/run", true},
		"as if of bsm, not 16 bytes":       {`q83vEjRWeJCrze8SNFZ4kB{"host":"api-3"}`, false},
		"as if of bsm, other alphabet":     {`q83v+jRWeJCrze8SNFZ4kA{"host":"api-3"}`, false},
		"of bsm, with a word":              {"q83vEjRWeJCrze8SNFZ4kAworker", false}, // may be a session, too
		"of redsync":                       {"q83v+jRWeJCrze8SNFZ/kA==", true},
		"as if of redsync, longer":         {"q83v+jRWeJCrze8SNFZ/kA===", false},
		"as if of redsync, not 16 bytes":   {"q83v+jRWeJCrze8SNFZ/kB==", false},
		"as if of redsync, other alphabet": {"q83v-jRWeJCrze8SNFZ/kA==", false},
		"a UUID":                           {"123e4567-e89b-12d3-a456-426614174000", false},
		"a JWT":                            {"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0", false},
		"another alphabet":                 {"q83vEjRWeJCrze8SNFZ4k+", false},
		"nothing":                          {"", false},
	} {
		if got := keyname.BeginsLikeToken(test.value); got != test.want {
			t.Errorf("%s: %q: %t, want %t", name, test.value, got, test.want)
		}
	}
}

// What the library makes is what the command line tool looks for.
func TestTokenOfALock(t *testing.T) {
	lock, err := redislocktest.New(t).Obtain(t.Context(), "a", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token := lock.Token(); !keyname.BeginsLikeToken(token) {
		t.Errorf("the token %q is not recognised", token)
	}
}

func TestBSMToken(t *testing.T) {
	for value, want := range map[string]string{
		`q83vEjRWeJCrze8SNFZ4kA{"host":"api-3"}`: "q83vEjRWeJCrze8SNFZ4kA",
		"q83vEjRWeJCrze8SNFZ4kA":                 "",
		"q83vEjRWeJCrze8SNFZ4kA text":            "",
		"q83vEjRWeJCrze8SNFZ4kA==":               "",
		"q83vEjRWeJCrze8SNFZ4kAworker":           "",
	} {
		if token, ok := keyname.BSMToken(value); token != want || ok != (want != "") {
			t.Errorf("%q: %q, %t, want %q", value, token, ok, want)
		}
	}
}
