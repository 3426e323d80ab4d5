package several

import "testing"

// No two waiters of a process have the same ticket at a time.
func TestTickets(t *testing.T) {
	c := ticketSet{taken: map[int64]struct{}{}}
	for i, want := range []int64{7, 8, 9} {
		if got := c.take(7); got != want {
			t.Errorf("claim %d of 7 is %d, not %d", i, got, want)
		}
	}
	if got := c.take(8); got != 10 {
		t.Errorf("8 to 9 are taken, and 8 becomes %d", got)
	}
	c.drop(8)
	if got := c.take(7); got != 8 {
		t.Errorf("8 was dropped, and 7 becomes %d", got)
	}
	for _, ticket := range []int64{7, 8, 9, 10} {
		c.drop(ticket)
	}
	if n := len(c.taken); n != 0 {
		t.Errorf("%d are left", n)
	}
}
