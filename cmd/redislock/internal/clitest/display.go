package clitest

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Display is what a terminal shows: it obeys the bytes that a program writes, as far as the program may use them. Everything
// else is in Unknown.
type Display struct {
	mu            sync.Mutex // protects what follows
	columns       int
	cells         [][]string // "" is the second half of a wide character
	normal        [][]string // what the alternate screen covers; nil if that is not on
	row, column   int
	first, last   int    // the lines that scroll
	at            [2]int // the cursor of the normal screen, meanwhile
	hidden        bool   // the cursor
	wraps, marked bool   // the next character goes into the next line; what is written is in reverse
	reverse       []bool // the lines that have text in reverse
	rest          []byte // of a sequence that is not whole yet
	unknown       []string
	colours       int
}

// NewDisplay returns an empty display of that size.
func NewDisplay(lines, columns int) *Display {
	d := &Display{}
	d.Resize(lines, columns)
	return d
}

// Resize changes the size, and breaks no line: what does not fit is gone.
func (d *Display) Resize(lines, columns int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.columns = columns
	fit := func(cells [][]string) [][]string {
		for len(cells) < lines {
			cells = append(cells, nil)
		}
		cells = cells[len(cells)-lines:]
		for i, line := range cells {
			for len(line) < columns {
				line = append(line, " ")
			}
			cells[i] = line[:columns]
		}
		return cells
	}
	d.row = max(0, min(d.row-max(0, len(d.cells)-lines), lines-1))
	d.column = min(d.column, columns-1)
	if d.cells = fit(d.cells); d.normal != nil {
		d.normal = fit(d.normal)
	}
	d.reverse, d.wraps = make([]bool, lines), false
	d.first, d.last = 0, lines-1
}

// Lines returns the lines, without spaces at their ends.
func (d *Display) Lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := make([]string, len(d.cells))
	for i, line := range d.cells {
		lines[i] = strings.TrimRight(strings.Join(line, ""), " ")
	}
	return lines
}

// Text returns the lines as one text, without empty lines at the end.
func (d *Display) Text() string { return strings.TrimRight(strings.Join(d.Lines(), "\n"), "\n") }

// Selected returns the lines that have text in reverse.
func (d *Display) Selected() (lines []string) {
	all := d.Lines()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, is := range d.reverse {
		if is {
			lines = append(lines, all[i])
		}
	}
	return lines
}

// IsNormal reports whether the normal screen is on, with a cursor.
func (d *Display) IsNormal() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.normal == nil && !d.hidden
}

// Unknown returns the sequences that the display does not know.
func (d *Display) Unknown() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.unknown)
}

// Colours returns how many colours were set.
func (d *Display) Colours() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.colours
}

// Write obeys some bytes. Sequences may come in pieces.
func (d *Display) Write(bytes []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rest = append(d.rest, bytes...)
	for len(d.rest) > 0 {
		n := d.obey(d.rest)
		if n == 0 { // the rest of it follows
			break
		}
		d.rest = d.rest[n:]
	}
	return len(bytes), nil
}

// obey obeys the first character or sequence of text, and returns its length; 0 if more of it is to come.
func (d *Display) obey(text []byte) int {
	switch b := text[0]; {
	case b == '\x1b':
		return d.sequence(text)
	case b == '\r':
		d.column, d.wraps = 0, false
	case b == '\n':
		d.down()
	case b == '\b':
		d.column, d.wraps = max(0, d.column-1), false
	case b == '\t':
		d.column = min(d.column/8*8+8, d.columns-1)
	case b == '\a':
	case b < ' ':
		d.unknown = append(d.unknown, strconv.Quote(string(text[:1])))
	default:
		if !utf8.FullRune(text) {
			return 0
		}
		r, size := utf8.DecodeRune(text)
		d.print(r)
		return size
	}
	return 1
}

func (d *Display) down() {
	d.wraps = false
	switch {
	case d.row == d.last:
		d.move(d.first, d.last)
	case d.row < len(d.cells)-1:
		d.row++
	}
}

// up is the opposite of down.
func (d *Display) up() {
	d.wraps = false
	switch {
	case d.row == d.first:
		d.move(d.last, d.first)
	case d.row > 0:
		d.row--
	}
}

// move moves a line, over those between, and empties it.
func (d *Display) move(from, to int) {
	d.cells = slices.Insert(slices.Delete(d.cells, from, from+1), to, d.blank())
	d.reverse = slices.Insert(slices.Delete(d.reverse, from, from+1), to, false)
}

func (d *Display) blank() []string { return slices.Repeat([]string{" "}, d.columns) }

func (d *Display) print(r rune) {
	width := runewidth.RuneWidth(r)
	if width == 0 {
		return
	}
	if d.wraps || d.column+width > d.columns {
		d.column = 0
		d.down()
	}
	d.cells[d.row][d.column] = string(r)
	if width == 2 {
		d.cells[d.row][d.column+1] = ""
	}
	if d.column == 0 {
		d.reverse[d.row] = false
	}
	d.reverse[d.row] = d.reverse[d.row] || d.marked
	d.column += width
	if d.wraps = d.column == d.columns; d.wraps {
		d.column--
	}
}

func (d *Display) sequence(text []byte) int {
	if len(text) == 1 {
		return 0
	}
	if text[1] == 'M' {
		d.up()
		return 2
	}
	if text[1] != '[' {
		d.unknown = append(d.unknown, strconv.Quote(string(text[:2])))
		return 2
	}
	end := slices.IndexFunc(text[2:], func(b byte) bool { return b >= '@' })
	if end < 0 {
		return 0
	}
	body, final := string(text[2:2+end]), text[2+end]
	numbers := [2]int{1, 1}
	for i, number := range strings.SplitN(body, ";", 2) {
		if n, err := strconv.Atoi(number); err == nil {
			numbers[i] = max(n, 1)
		}
	}
	switch final {
	case 'H':
		d.row, d.column = min(numbers[0], len(d.cells))-1, min(numbers[1], d.columns)-1
		d.wraps = false
	case 'K':
		copy(d.cells[d.row][d.column:], d.blank())
	case 'J':
		copy(d.cells[d.row][d.column:], d.blank())
		for i := d.row + 1; i < len(d.cells); i++ {
			d.cells[i], d.reverse[i] = d.blank(), false
		}
	case 'm':
		d.marked = body == "7" || d.marked && body != "0" && body != ""
		if body != "7" && body != "0" {
			d.colours++
		}
	case 'r':
		d.first, d.last = 0, len(d.cells)-1
		if body != "" {
			d.first, d.last = numbers[0]-1, min(numbers[1], len(d.cells))-1
		}
		d.row, d.column, d.wraps = 0, 0, false
	case 'h', 'l':
		d.mode(body, final == 'h')
	default:
		d.unknown = append(d.unknown, strconv.Quote(string(text[:3+end])))
	}
	return 3 + end
}

func (d *Display) mode(which string, on bool) {
	switch {
	case which == "?25":
		d.hidden = !on
	case which == "?1049" && on && d.normal == nil:
		d.normal, d.at = d.cells, [2]int{d.row, d.column}
		d.cells = nil
		for range d.normal {
			d.cells = append(d.cells, d.blank())
		}
		d.row, d.column = 0, 0
	case which == "?1049" && !on && d.normal != nil:
		d.cells, d.normal = d.normal, nil
		d.row, d.column = min(d.at[0], len(d.cells)-1), d.at[1]
	case which == "?1049":
	default:
		d.unknown = append(d.unknown, strconv.Quote("\x1b["+which))
	}
}
