package redistest

import (
	"fmt"
	"time"
)

// How long the package waits for a process before it gives up.
const (
	startLimit = 10 * time.Second
	// For several processes to find each other and agree.
	settleLimit = 30 * time.Second
)

// poll calls check until it returns nil, after a few milliseconds each time and a little more the longer it takes. It gives
// up after limit, or as soon as stop is closed, with the last error of check; a nil stop never stops it.
func poll(stop <-chan struct{}, limit time.Duration, check func() error) error {
	deadline := time.After(limit)
	for wait := time.Millisecond; ; wait = min(wait+time.Millisecond, 20*time.Millisecond) {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-stop:
			return err
		case <-deadline:
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-time.After(wait):
		}
	}
}
