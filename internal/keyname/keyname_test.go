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
		"a token":               {"q83vEjRWeJCrze8SNFZ4kA", true},
		"a token with metadata": {"q83vEjRWeJCrze8SNFZ4k_ x", true},
		"a token and a space":   {"q83vEjRWeJCrze8SNFZ4k- ", true},
		"one character less":    {"q83vEjRWeJCrze8SNFZ4k", false},
		"one more":              {"q83vEjRWeJCrze8SNFZ4kAA", false},
		"another alphabet":      {"q83vEjRWeJCrze8SNFZ4k+", false},
		"nothing":               {"", false},
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

// Programs of different releases share the marker, and users name it in ACLs.
func TestGuardMarkerHasItsName(t *testing.T) {
	if keyname.GuardMarker != "redislock:guard" {
		t.Errorf("the marker is %q", keyname.GuardMarker)
	}
}
