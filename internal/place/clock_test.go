package place

import (
	"testing"
	"time"
	"unsafe"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
)

// After a suspend, the wall clock is ahead of the monotonic one, which stood still. Only package time can make such a
// time, so this test writes into one.
func TestUntilAfterSuspend(t *testing.T) {
	sent := time.Now()
	wall := (*uint64)(unsafe.Pointer(&sent)) // the first field; its seconds begin at bit 30
	*wall -= 3600 << 30
	held := lease.Found(sent, 10*time.Second)
	until := held.Until()
	if !time.Now().Before(until) || time.Now().Round(0).Before(until.Round(0)) {
		t.Fatal("package time has another layout by now; mend this test")
	}
	hold := &Lock{Claim: Claim{Place: &Place{}}, Lease: held}
	if time.Now().Before(life.Until(hold)) {
		t.Error("the hold believes itself valid an hour after its wall clock time")
	}
	if !lease.Passed(until) {
		t.Error("a time has not passed whose wall clock time has")
	}
}
