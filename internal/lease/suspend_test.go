package lease

import (
	"testing"
	"time"
)

func TestThirdClockGoesOnAsTheMonotonicOne(t *testing.T) {
	if _, has := sinceBoot(); !has {
		t.Skip("this system has no third clock")
	}
	before, _ := Suspended(time.Now())
	time.Sleep(50 * time.Millisecond)
	after, known := Suspended(time.Now())
	if !known || after < before || after-before > 2*clockSlack {
		t.Errorf("%v, then %v", before, after)
	}
}
