package show

import (
	"fmt"
	"strings"

	"github.com/redislock/redislock"
)

// Circle says who waits for whom in a circle that the caller has closed.
func Circle(e *redislock.DeadlockError) string {
	var text strings.Builder
	text.WriteString("deadlock: this waits for ")
	for i, b := range e.Circle {
		if i > 0 {
			text.WriteString(", who waits for ")
		}
		fmt.Fprintf(&text, "%q", b.Key)
		switch last := i == len(e.Circle)-1; {
		case last:
			text.WriteString(", which this run holds")
		case b.Token != "":
			text.WriteString(", held by " + Who(b.Token, b.Metadata))
		default:
			text.WriteString(", behind " + Who("", b.Metadata) + " in line")
		}
	}
	return text.String() + "; take all keys at once, or always in the same order"
}
