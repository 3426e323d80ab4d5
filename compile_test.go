package redislock_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redislock/redislock/internal/testing/race"
)

// A package that sees redis.Client compiles 1,700 functions for it, in 2.4 s of CPU. It sees it by a name, or because a type
// that it imports leads there through any field or method. docs/decisions.md has the figures. An interface, like
// transport.Conn, leads nowhere.
func TestOnlyOnePackageCompilesTheClientsOfGoRedis(t *testing.T) {
	if race.Enabled {
		t.Skip("go list would compile everything once more without the race detector")
	}
	const (
		library = "github.com/redislock/redislock"
		symbol  = "(*struct { *github.com/redis/go-redis/v9.baseClient;" // begins the names of these functions
	)
	packages, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(packages)) {
		name, archive, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, library) || name == library+"/internal/goredis" {
			continue
		}
		compiled, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(compiled, []byte(symbol)) {
			t.Errorf("%s compiles the methods of redis.Client: name an interface of what it needs instead", name)
		}
	}
}
