package claim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each promise names a spec that exists.
func TestPromises(t *testing.T) {
	table, err := os.ReadFile("promises.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[0], "--") || strings.TrimSpace(cells[0]) == "Promise" {
			continue
		}
		rows++
		file, title, _ := strings.Cut(strings.TrimSpace(cells[3]), ": ")
		specs, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		switch {
		case err != nil:
			t.Error(err)
		case !strings.Contains(string(specs), `"`+title+`"`):
			t.Errorf("%s has no spec %q", file, title)
		}
	}
	if rows < 30 {
		t.Errorf("only %d promises", rows)
	}
}
