package redispage_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/redislock/redislock/internal/testing/redispage"
)

func read(t *testing.T, text string) (redispage.Features, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return redispage.Read(path)
}

func TestCommandsIncludesNeededRows(t *testing.T) {
	page, err := read(t, "| Feature | Commands | Needs |\n|---|---|---|\n"+
		"| One: `X`, `Y` | `SET` `PUBSUB NUMSUB` | |\n| Two | `GET` `SET` | One |\n| Three | – | Two, One |\n")
	if err != nil {
		t.Fatal(err)
	}
	for feature, want := range map[string][]string{
		"One": {"PUBSUB NUMSUB", "SET"}, "Two": {"GET", "PUBSUB NUMSUB", "SET"}, "Three": {"GET", "PUBSUB NUMSUB", "SET"},
	} {
		if got := page.Commands(feature); !slices.Equal(got, want) {
			t.Errorf("Commands(%q) = %q, want %q", feature, got, want)
		}
	}
	if got := redispage.Rights(page.Commands("One")); !slices.Equal(got, []string{"+pubsub|numsub", "+set"}) {
		t.Errorf("Rights() = %q", got)
	}
}

func TestReadReportsAMissingRow(t *testing.T) {
	if _, err := read(t, "| One | `SET` | None |\n"); err == nil {
		t.Error("Read() accepted a row that needs one that is not there")
	}
}
