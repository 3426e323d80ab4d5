package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

const (
	listHints = "/ filter  %sEnter inspect  f free  ? help  q quit"
	sortHint  = "s sort  "
	sortHelp  = "  s                     sort by another column"
	pageHints = "Esc back  f free  q quit"

	usualColumns, usualLines = 80, 24 // of a terminal that does not tell its size
)

// helpText is the page of "?".
var helpText = []string{
	"Keys",
	"",
	"  Up Down, j k          select a row",
	"  PageUp PageDown       a page up or down; also Space, Ctrl-B and Ctrl-F",
	"  Home End, g G         the first row, the last row",
	"  /                     show only rows with a text; Enter keeps them, Esc shows all again",
	sortHelp,
	"  Enter                 show all about the key; Esc, Left or Enter goes back",
	"  f                     free the key, after a question",
	"  ?                     this page",
	"  q, Ctrl-C             end",
	"",
	"Marks before a row: > selected, + new since the last look, * changed since the last look.",
}

func (b *browser) help(term.Screen) []string {
	return slices.DeleteFunc(slices.Clone(helpText), func(line string) bool { return line == sortHelp && !b.sorts() })
}

// sorts reports whether "s" does anything.
func (b *browser) sorts() bool { return len(b.source.Orders) > 0 }

// press does what a key is for.
func (b *browser) press(k key) {
	b.message = ""
	switch {
	case b.question != nil:
		b.answer(k == 'y' || k == 'Y')
	case b.filtering:
		b.write(k)
	case k == 'q' || k == 'Q':
		b.over = true
	case b.page != nil:
		b.read(k)
	default:
		b.choose(k)
	}
}

// write is press while the user writes a filter.
func (b *browser) write(k key) {
	filter := b.list.filter
	switch {
	case k == keyEnter:
		b.filtering = false
	case k == keyEsc:
		b.filtering, filter = false, ""
	case k == keyClear:
		filter = ""
	case k == keyBackspace && filter == "":
		b.filtering = false
	case k == keyBackspace:
		runes := []rune(filter)
		filter = string(runes[:len(runes)-1])
	case k > 0 && unicode.IsPrint(rune(k)):
		filter += string(rune(k))
	}
	if filter != b.list.filter {
		b.list.narrow(filter)
	}
}

// read is press on a page.
func (b *browser) read(k key) {
	switch k {
	case keyEsc, keyEnter, keyLeft, keyBackspace:
		b.page, b.pageKey = nil, ""
		return
	case 'f':
		if b.pageKey != "" {
			b.free(b.pageKey)
		}
		return
	}
	last := max(0, len(b.page(b.screen))-b.room())
	if to, moves := moved(k, b.pageTop, b.room(), last+1); moves {
		b.pageTop = to
	}
}

// choose is press in the list.
func (b *browser) choose(k key) {
	selected := b.list.key()
	switch {
	case k == '/':
		b.list.remember()
		b.filtering = true
	case k == keyEsc && b.list.filter != "":
		b.list.remember()
		b.list.narrow("")
	case k == 's' && b.sorts():
		b.order = (b.order + 1) % len(b.source.Orders)
		b.look()
	case k == '?':
		b.page, b.pageTop = b.help, 0
	case k == keyEnter && selected != "":
		b.pageTop = 0
		b.inspect(selected)
	case k == 'f' && selected != "":
		b.free(selected)
	default:
		if to, moves := moved(k, b.list.selected, max(1, b.room()-1), len(b.list.shown)); moves {
			b.list.selected = to
		}
	}
}

func (b *browser) size() (columns, lines int) {
	return cmp.Or(b.screen.Columns, usualColumns), cmp.Or(b.screen.Lines, usualLines)
}

// room returns how many lines are between the first and the last one.
func (b *browser) room() int {
	_, lines := b.size()
	return max(0, lines-2)
}

func (b *browser) draw() error {
	columns, height := b.size()
	s := term.Screen{Columns: columns, Lines: height, Coloured: b.screen.Coloured}
	lines := append([]string{b.title(s)}, b.body(s)...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, term.Shorten(b.status(), columns))
	return b.canvas.draw(lines[:height])
}

// title returns the first line: when the source was asked, and what it said in short.
func (b *browser) title(s term.Screen) string {
	text, colour := "looking…", term.Faint
	switch {
	case b.failure != nil:
		text, colour = oneLine(b.failure), term.Red
	case !b.looked.IsZero():
		text = fmt.Sprintf("%s, every %v%s", b.list.rows.Title, b.source.Every, b.list.news)
	}
	if !b.looked.IsZero() {
		text = b.looked.Format(time.TimeOnly) + "  " + text
	}
	return s.Paint(colour, term.Shorten(text, s.Columns))
}

func (b *browser) body(s term.Screen) []string {
	page := b.page
	switch {
	case b.question != nil:
		page = b.question.Facts
	case page == nil && len(b.list.shown) == 0 && b.list.filter != "":
		return []string{"", s.Paint(term.Faint, term.Shorten("  nothing has this text", s.Columns))}
	case page == nil:
		return b.list.draw(s, b.room())
	}
	lines := page(s)
	b.pageTop = max(0, min(b.pageTop, len(lines)-b.room()))
	lines = lines[b.pageTop:min(len(lines), b.pageTop+b.room())]
	cut := make([]string, len(lines))
	for i, line := range lines {
		if cut[i] = line; term.Width(colours.ReplaceAllString(line, "")) > s.Columns {
			cut[i] = term.Shorten(line, s.Columns)
		}
	}
	return cut
}

// status returns the last line.
func (b *browser) status() string {
	switch {
	case b.question != nil:
		return b.question.Text + " [y/N]"
	case b.filtering:
		return "/" + b.list.filter + "_"
	case b.message != "":
		return b.message
	case b.page != nil:
		return pageHints
	}
	at := fmt.Sprintf("%d of %d", min(b.list.selected+1, len(b.list.shown)), len(b.list.shown))
	if b.list.filter != "" {
		at += " with " + words.Escape(b.list.filter)
	}
	sorts := ""
	if b.sorts() {
		sorts = sortHint
	}
	return at + strings.Repeat(" ", 3) + fmt.Sprintf(listHints, sorts)
}
