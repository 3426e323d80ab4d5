package show

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// WriteJSON prints a value as one line of JSON that is safe on a terminal: invisible characters, and those that change the
// direction of text, are written as \u and four digits.
func WriteJSON(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	line := bytes.TrimRight(text.Bytes(), "\n")
	out := make([]byte, 0, len(line)+1)
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		switch {
		case term.Visible(r):
			out = append(out, line[:size]...)
		case r > 0xffff: // JSON has surrogates only
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		line = line[size:]
	}
	_, err := w.Write(append(out, '\n'))
	return err
}

// inBase64 returns in base64 what JSON cannot hold: text that is not UTF-8. For other text it returns "".
func inBase64(text string) string {
	if utf8.ValidString(text) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}
