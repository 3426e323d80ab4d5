package several

import "testing"

// What a round amounts to, as its answers come in.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		places, need     int
		granted, refused int
		waits            bool
		want             verdict
		why              string
	}{
		{3, 2, 0, 0, true, open, "nobody has answered yet"},
		{3, 2, 1, 0, true, open, "one more grant is needed"},
		{3, 2, 2, 0, true, won, "the third server is not waited for"},
		{3, 2, 2, 1, false, won, "a minority has refused"},
		{3, 2, 1, 1, true, open, "the third server decides"},
		{3, 2, 0, 2, true, refused, "no majority is left"},
		{3, 2, 1, 2, false, refused, "no majority is left"},
		{3, 2, 1, 1, false, refused, "a majority has answered, so the third server is no outage"},
		{3, 2, 0, 1, false, undecided, "two servers are missing"},
		{3, 2, 1, 0, false, undecided, "two servers are missing"},
		{3, 2, 0, 0, false, undecided, "no server has answered"},

		{5, 3, 2, 2, true, open, "the fifth server decides"},
		{5, 3, 2, 3, false, refused, "no majority is left"},
		{5, 3, 2, 1, false, refused, "a majority has answered"},
		{5, 3, 2, 0, false, undecided, "too few servers have answered, and nobody has refused"},
		{5, 3, 3, 2, true, won, "a majority has granted"},

		{2, 2, 1, 0, true, open, "both are needed"},
		{2, 2, 1, 1, false, refused, "both are needed, as for slots"},
		{2, 2, 2, 0, false, won, "both have granted"},
		{2, 2, 1, 0, false, undecided, "one server is missing"},
		{9, 9, 8, 1, true, refused, "every slot is needed"},
		{9, 9, 8, 0, true, open, "every slot is needed"},
	} {
		got := tally{c.places, c.need, c.granted, c.refused, c.waits}.judge()
		if got != c.want {
			t.Errorf("of %d places, %d granted and %d refused, others may answer: %v: verdict %d, want %d, because %s",
				c.places, c.granted, c.refused, c.waits, got, c.want, c.why)
		}
	}
}
