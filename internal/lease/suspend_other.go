//go:build !linux && !darwin && !windows

package lease

import "time"

func sinceBoot() (time.Duration, bool) { return 0, false }
