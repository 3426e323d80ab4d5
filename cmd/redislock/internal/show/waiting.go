package show

import (
	"fmt"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

// Process is a process that waits in a line.
type Process struct {
	Name     string // as in [redislock.Waiter]
	Metadata string // of its first waiter
	Waiters  int
	Late     int       // how many of them have missed a sign of life
	Since    time.Time // when the first of them came
}

// ByProcess returns the processes that wait in a line, in the order of their first waiters.
func ByProcess(line []redislock.Waiter) []Process {
	var all []Process
	at := map[string]int{} // by name
	for _, w := range line {
		i, seen := at[w.Process]
		if !seen {
			i = len(all)
			at[w.Process] = i
			all = append(all, Process{Name: w.Process, Metadata: w.Metadata, Since: w.Since})
		}
		all[i].Waiters++
		if w.Late {
			all[i].Late++
		}
	}
	return all
}

// shownName is how many characters of the name of a process are shown. In practice, no two processes have them in common.
const shownName = 8

// String says in a few words which process it is: what the metadata says if it has a pid, or else the metadata, if any, and
// the beginning of the name.
func (p Process) String() string {
	if o := OwnerOf(p.Metadata); o.Who != "" && o.PID != "" {
		return Who("", p.Metadata)
	}
	name := "process " + term.Shorten(words.Escape(p.Name), shownName+1)
	if words.Metadata(p.Metadata) == "" {
		return name
	}
	return Who("", p.Metadata) + ", " + name
}

// Waiting says in a few words how many of its waiters are in line, and for how long. now is the time of the server.
func (p Process) Waiting(now time.Time) string {
	text := "1, for "
	if p.Waiters > 1 {
		text = fmt.Sprintf("%d, the first for ", p.Waiters)
	}
	text += words.Duration(max(now.Sub(p.Since), 0))
	switch p.Late {
	case 0:
		return text
	case p.Waiters:
		return text + ", late"
	}
	return text + fmt.Sprintf(", %d late", p.Late)
}
