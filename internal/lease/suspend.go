package lease

import "time"

// The clocks that package time has disagree after a suspend, which stops only the monotonic one, and after a step, which
// moves only the wall clock. A third one, which neither stops nor moves, tells which of the two it was. It is asked only
// when they disagree.

var (
	start             = time.Now()
	startBoot, isBoot = sinceBoot() // the third clock then; false if the system has none
)

// clockSlack is more than the third clock may be off: that of Windows moves in steps of 16 ms.
const clockSlack = 20 * time.Millisecond

// Suspended returns for how long the machine was suspended, at most, since this process began. Only tests replace it.
var Suspended = func(now time.Time) (most time.Duration, known bool) {
	boot, ok := sinceBoot()
	if !isBoot || !ok {
		return 0, false
	}
	return max(0, boot-startBoot-now.Sub(start)) + clockSlack, true
}

// Left returns how much time is left until t, by the clock that says less; but not by a wall clock that was set forward.
func Left(now, t time.Time) time.Duration {
	left, byWall := t.Sub(now), byWall(now, t)
	if left <= 0 || left-byWall < clockSlack {
		return min(left, byWall)
	}
	if asleep, known := Suspended(now); known {
		return max(byWall, left-asleep)
	}
	return byWall
}

// PassedByWall reports whether t has passed by the wall clock, which may have been set forward.
func PassedByWall(now, t time.Time) bool { return byWall(now, t) <= 0 }

func byWall(now, t time.Time) time.Duration { return t.Round(0).Sub(now.Round(0)) }
