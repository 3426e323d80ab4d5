package locking

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/screen"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/words"
)

// liveLine shows what is in the way in one line of a terminal, which is redrawn until the wait ends.
type liveLine struct {
	patience *Patience
	target   *connect.Target
	tty      *os.File
	began    time.Time

	line *screen.Line // nil until the first word
	back func()       // gives complaints their way back

	mu       sync.Mutex // protects what follows, which the line reads
	seen     Obstacles
	at       time.Time // when it was seen
	renewals renewals
	away     error // why the last look has failed; nil if it has not
}

// lookGap is the time between two looks. "renewed 3s ago" is as exact as that.
const lookGap = time.Second

func (l *liveLine) next() time.Time {
	if now := time.Now(); now.Sub(l.began) >= firstWord {
		return now.Add(lookGap)
	}
	return l.began.Add(firstWord)
}

func (l *liveLine) See(o Obstacles) {
	now := time.Now()
	l.mu.Lock()
	l.seen, l.at, l.away = o, now, nil
	l.renewals.see(o, now)
	l.mu.Unlock()
	if len(o.Blocked) > 0 {
		l.show()
	}
}

func (l *liveLine) Miss(err error) {
	l.mu.Lock()
	l.away = err
	l.mu.Unlock()
	l.show()
}

// show shows the line after a moment. Complaints are printed above it from then on.
func (l *liveLine) show() {
	if l.line != nil || time.Since(l.began) < firstWord {
		return
	}
	line := screen.ShowLine(l.tty, l.target.Getenv, l.text)
	l.line, l.back = line, l.target.ReportTo(func(text string) { line.Print(cli.Complaint(text)) })
}

func (l *liveLine) End(granted bool) {
	if l.line == nil {
		return
	}
	l.back()
	last := ""
	if granted {
		last = cli.Complaint(acquiredAfter(time.Since(l.began)).Error())
	}
	l.line.End(last)
}

func (l *liveLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	text := "redislock: waiting " + words.Seconds(now.Sub(l.began))
	if l.seen.Position > 0 {
		text += fmt.Sprintf(", number %d in line", l.seen.Position)
	}
	parts := []string{text}
	if l.away != nil {
		why := l.patience.Unreachable(context.Background(), l.target, l.away)
		parts = append(parts, words.Printable(why.Error()))
	}
	for _, e := range l.seen.Blocked {
		if passed := now.Sub(l.at); e.Closed > 0 {
			parts = append(parts, show.Closed(max(e.Closed-passed, 0)))
		} else {
			parts = append(parts, show.Blocker(e, l.renewals.since(e.Key, now), passed))
		}
	}
	return strings.Join(parts, "; ")
}

// renewals knows when keys were renewed, as far as their ttls at several looks tell.
type renewals map[string]renewal // by key

type renewal struct {
	token string
	ttl   time.Duration // at the last look
	at    time.Time     // when the answer of the last look was there
	full  time.Duration // the longest that was seen: about the ttl that a renewal sets
	last  time.Time     // when it was last renewed; zero if no renewal was seen
}

// rounding is how much the ttls of two looks may be wrong, and two clocks run differently meanwhile.
const rounding = 10 * time.Millisecond

// see notes the ttls that were seen now. A ttl without a renewal has become shorter by the time between the two looks at
// least, from the answer of the first to the question of the second: an answer may take long. A renewal was after the last
// look, and about as long ago as the ttl is shorter than the full one.
func (r renewals) see(o Obstacles, now time.Time) {
	before := maps.Clone(r)
	clear(r) // a key that was free in between has a new holder
	for _, e := range o.Blocked {
		k := renewal{token: e.Token, ttl: e.TTL, at: now, full: e.TTL}
		if b, known := before[e.Key]; known && b.token == e.Token && e.TTL > 0 && b.ttl > 0 {
			k.full, k.last = max(b.full, e.TTL), b.last
			if e.TTL > b.ttl-o.Asked.Sub(b.at)+rounding {
				if k.last = now.Add(e.TTL - k.full); k.last.Before(b.at) {
					k.last = b.at
				}
			}
		}
		r[e.Key] = k
	}
}

// since returns for how long a key was not renewed; negative if no renewal was seen.
func (r renewals) since(key string, now time.Time) time.Duration {
	if last := r[key].last; !last.IsZero() {
		return now.Sub(last)
	}
	return -1
}
