package place

import (
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// Progress is what is known of the tries of an obtain so far.
type Progress struct {
	Limited bool  // ctx ends after one ttl, because the caller set no deadline
	Tries   int   // how many there were
	Resends int   // how many resends they needed
	Belated int8  // how many grants in a row came too late; see decline
	Failure error // how the last try failed, wrapped; nil if it was granted or refused
}

// Unanswered returns the error of a try that began at that time and was not answered by the end of ctx.
func (p *Progress) Unanswered(began time.Time, ttl time.Duration) error {
	if p.Limited && lease.Passed(lease.ValidUntil(began, ttl)) {
		return fmt.Errorf("%w within the ttl of %v: %w", fault.ErrUnanswered, ttl, fault.ErrLapsed)
	}
	return fault.ErrUnanswered
}
