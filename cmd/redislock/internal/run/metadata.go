package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/user"
	"strings"

	"github.com/redislock/redislock"
)

// longestCommand is how much of a command line the metadata contains, in bytes.
const longestCommand = 300

// metadata returns what the locks store: the text of --meta, or a description of this process with the user and the
// command.
func (f *runFlags) metadata() string {
	if f.hasMeta {
		return f.meta
	}
	own := struct {
		User    string `json:"user"`
		Command string `json:"command"`
	}{userName(), commandLine(f.command)}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // commands have < and & in them
	if encoder.Encode(own) != nil {
		return redislock.ProcessMetadata()
	}
	// Both are objects with at least one field.
	more := strings.TrimPrefix(strings.TrimSpace(text.String()), "{")
	return strings.TrimSuffix(redislock.ProcessMetadata(), "}") + "," + more
}

// userName returns who runs this process, for people to read. It looks at the environment first, since looking the id up may
// mean asking a directory server.
func userName() string {
	if name := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME")); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// commandLine returns the command as one could type it into a shell, cut to a length that people can read.
func commandLine(command []string) string {
	var line strings.Builder
	for i, word := range command {
		if i > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(shellQuote(word))
		if line.Len() > longestCommand {
			return strings.ToValidUTF8(line.String()[:longestCommand], "") + "…"
		}
	}
	return strings.ToValidUTF8(line.String(), "�")
}

// shellQuote quotes a word that a shell would not take literally.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r) ||
			r >= 0x80
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
