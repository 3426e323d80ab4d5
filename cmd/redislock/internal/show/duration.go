package show

import (
	"fmt"
	"time"
)

// Duration writes a duration for people, in two units at most: 850ms, 9.8s, 42s, 4m12s, 2h03m, 3d04h. It rounds down, so
// that it never overstates the remaining time of a lock.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// TTL writes the remaining ttl of a key, as in [redislock.Status].
func TTL(ttl time.Duration) string {
	if ttl < 0 {
		return "none"
	}
	return Duration(ttl)
}
