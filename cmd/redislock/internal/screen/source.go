package screen

import (
	"context"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Source knows what a screen shows. Its functions may block until ctx ends, which happens when the user leaves. They run in
// goroutines: Look never twice at the same time, but any two others.
type Source struct {
	Every    time.Duration // from the end of one look to the next
	Orders   []string      // names for Look, the first of which is used at first; may be empty
	Messages <-chan string // what to show in the last line of the screen, safe to print; may be nil

	// Look returns the rows in an order. The error of the first look ends the screen, and later ones are shown.
	Look func(ctx context.Context, order string) (*Rows, error)

	// Inspect returns all about a key.
	Inspect func(ctx context.Context, key string) (Page, error)

	// Free returns the question to ask before a key is freed.
	Free func(ctx context.Context, key string) (*Question, error)
}

// Rows are what a screen shows: a table of which the user selects rows. All text in it is safe to print.
type Rows struct {
	Title   string
	Columns []term.Column // none of them wraps
	Head    bool          // the names of the columns are shown
	All     []Row
}

// Row is a row of the table.
type Row struct {
	Key   string // what the row is about; "" for nothing that can be inspected or freed. Several rows may have the same key
	State string // when it changes, the row is marked: times that change by themselves do not belong into it
	Cells []term.Cell
}

// Page is a text that is shown instead of the rows. It returns the lines for a screen of some width.
type Page func(term.Screen) []string

// Question is a question that y answers with yes, and any other key with no.
type Question struct {
	Facts Page   // what to know for an answer
	Text  string // the question, on one line

	Yes func(ctx context.Context) (done string, err error) // does it, and says what was done
	No  string                                             // what to say after a no
}
