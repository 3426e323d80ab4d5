package tree

import (
	"fmt"
	"slices"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/tree"
	"github.com/redislock/redislock/internal/words"
)

// who says in a few words who holds a lock.
func who(l *tree.Lock) string {
	if words.Metadata(l.Metadata) == "" {
		return "token " + words.ShortToken(l.Token)
	}
	return show.Who("", l.Metadata)
}

// waiterName says in a few words who waits.
func waiterName(w *tree.Waiter) string {
	return show.Process{Name: w.Process, Metadata: w.Metadata}.String()
}

// wish says how a waiter wants a key, by its limit.
func wish(limit int) string {
	switch limit {
	case 0:
		return " waits to share "
	case 1:
		return " waits for "
	}
	return fmt.Sprintf(" waits to be one of %d holders of ", limit)
}

// waiting says how many wait.
func waiting(count int) string {
	switch count {
	case 0:
		return "nobody waits"
	case 1:
		return "1 waits"
	}
	return fmt.Sprintf("%d wait", count)
}

func name(key string) term.Cell { return term.Cell{Text: words.Escape(key), Colour: term.Bold} }

// maxNames is how many keys are named in a line.
const maxNames = 5

// names lists keys, with this word before the last one.
func names(keys []string, word string) (cells []term.Cell) {
	shown := keys
	if len(keys) > maxNames {
		shown = keys[:maxNames-1]
	}
	for i, key := range shown {
		switch {
		case i > 0 && i == len(keys)-1:
			cells = append(cells, term.Cell{Text: word})
		case i > 0:
			cells = append(cells, term.Cell{Text: ", "})
		}
		cells = append(cells, name(key))
	}
	if more := len(keys) - len(shown); more > 0 {
		cells = append(cells, term.Cell{Text: fmt.Sprintf("%s%d more", word, more)})
	}
	return cells
}

// keysOf returns the keys of a lock, those with the most waiters first.
func keysOf(l *tree.Lock) (keys []string) {
	holds := slices.SortedStableFunc(slices.Values(l.Keys), func(a, b *tree.Hold) int { return b.Key.Waiters - a.Key.Waiters })
	for _, h := range holds {
		keys = append(keys, h.Key.Key)
	}
	return keys
}
