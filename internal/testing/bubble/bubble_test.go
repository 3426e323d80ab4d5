package bubble_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/bubble"
)

// With the race detector and synctest.Test, this ends the process within a second.
func TestTimersOfSeveralGoroutinesFireAtTheSameTime(t *testing.T) {
	for range 200 {
		bubble.Test(t, func(*testing.T) {
			var timers sync.WaitGroup
			for range 4 {
				timers.Go(func() {
					for range 1000 {
						<-time.NewTimer(0).C
					}
				})
			}
			timers.Wait()
		})
	}
}
