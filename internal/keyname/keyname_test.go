package keyname_test

import (
	"testing"

	"github.com/redislock/redislock/internal/keyname"
)

// Programs of different releases share the marker, and users name it in ACLs.
func TestGuardMarkerHasItsName(t *testing.T) {
	if keyname.GuardMarker != "redislock:guard" {
		t.Errorf("the marker is %q", keyname.GuardMarker)
	}
}
