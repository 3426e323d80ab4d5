package claim

import (
	"cmp"
	"encoding/json"
	"os"
	"os/user"
	"regexp"
	"strings"
	"time"
)

// longestCommand is how much of a command line the metadata contains, in bytes.
const longestCommand = 300

// metadata returns what the locks store: the text of --meta, or who holds them since when, and for which command. Without a
// command, the holder is the script that runs this program.
func (f *Flags) metadata() string {
	if f.HasMeta {
		return f.Meta
	}
	host, _ := os.Hostname() // a process without a host name still has a pid
	own := struct {
		Host    string    `json:"host"`
		PID     int       `json:"pid"`
		User    string    `json:"user,omitempty"`
		Command string    `json:"command,omitempty"`
		Since   time.Time `json:"since"`
	}{
		Host: host, PID: os.Getpid(), User: userName(), Command: commandLine(f.Command),
		Since: time.Now().UTC().Truncate(time.Millisecond),
	}
	if f.Command == nil {
		own.PID = os.Getppid()
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // commands have < and & in them
	_ = encoder.Encode(own)      // text, numbers and times: cannot fail
	return strings.TrimSpace(text.String())
}

// userName looks at the environment first, because looking the id up may mean asking a directory server.
func userName() string {
	if name := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME")); name != "" {
		return name
	}
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// commandLine returns the command as one could type it into a shell, cut to a length that people can read.
func commandLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if words[i] = word; special.MatchString(word) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	line := strings.ToValidUTF8(strings.Join(words, " "), "�")
	if len(line) > longestCommand {
		return strings.ToValidUTF8(line[:longestCommand], "") + "…"
	}
	return line
}

// special matches a word that a shell would not take literally.
var special = regexp.MustCompile(`^$|[^-\w./:=,+@%\x{80}-\x{10FFFF}]`)
