package lease

import (
	"syscall"
	"time"
)

var tickCount = syscall.NewLazyDLL("kernel32.dll").NewProc("GetTickCount64")

// sinceBoot returns GetTickCount64, which goes on while the machine is suspended.
func sinceBoot() (time.Duration, bool) {
	if tickCount.Find() != nil {
		return 0, false
	}
	low, high, _ := tickCount.Call() // in two registers where one has 32 bits
	ticks := uint64(low)
	if ^uintptr(0)>>32 == 0 {
		ticks |= uint64(high) << 32
	}
	return time.Duration(ticks) * time.Millisecond, true
}
