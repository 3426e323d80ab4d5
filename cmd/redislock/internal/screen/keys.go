package screen

import "unicode/utf8"

// key is a key that was pressed: a character, or one of the keys below.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyLeft
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyEsc
	keyEnter
	keyBackspace
	keyClear // Ctrl-U
	keyOther // a sequence that means nothing here
)

// sequences are what terminals send for a key, after \x1b[ or \x1bO.
var sequences = map[string]key{
	"A": keyUp, "B": keyDown, "D": keyLeft, "H": keyHome, "F": keyEnd,
	"5~": keyPageUp, "6~": keyPageDown, "1~": keyHome, "7~": keyHome, "4~": keyEnd, "8~": keyEnd,
}

// keyboard makes keys of the bytes that a terminal sends. The bytes of one key may come one by one, with pauses.
type keyboard struct{ rest []byte }

// press takes the next byte, and returns the keys that are complete now.
func (k *keyboard) press(b byte) []key {
	if b == '\x1b' || len(k.rest) == 1 && k.rest[0] == '\x1b' && b != '[' && b != 'O' {
		before := k.giveUp() // Esc, and then another key
		if b == '\x1b' {
			k.rest = []byte{b}
			return before
		}
		return append(before, k.press(b)...)
	}
	k.rest = append(k.rest, b)
	switch text := string(k.rest); {
	case text[0] == '\x1b' && len(text) > 2 && b >= '@':
		k.rest = nil
		if found, known := sequences[text[2:]]; known {
			return []key{found}
		}
		return []key{keyOther}
	case text[0] == '\x1b', !utf8.FullRune(k.rest): // there is more to come
		return nil
	default:
		k.rest = nil
		r, _ := utf8.DecodeRuneInString(text)
		return []key{plain(r)}
	}
}

// plain returns the key of a character.
func plain(r rune) key {
	switch r {
	case '\r', '\n':
		return keyEnter
	case '\b', '\x7f':
		return keyBackspace
	case '\x15':
		return keyClear
	case '\x02': // Ctrl-B and Ctrl-F, as in less
		return keyPageUp
	case '\x06':
		return keyPageDown
	}
	return key(r)
}

// giveUp returns the keys of what has come so far, because no more came for a while.
func (k *keyboard) giveUp() []key {
	before := k.rest
	k.rest = nil
	switch {
	case len(before) == 0:
		return nil
	case string(before) == "\x1b":
		return []key{keyEsc}
	}
	return []key{keyOther}
}

// isPartial reports whether more bytes may follow.
func (k *keyboard) isPartial() bool { return len(k.rest) > 0 }
