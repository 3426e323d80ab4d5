package redislock_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redislock/redislock/internal/testing/race"
)

// A package that has a generic type or function for redis.Client compiles 1,700 functions for that, in 2 s of CPU. From
// go-redis v9.23.0 on, every package that sees redis.Client does, because the client has a weak pointer to itself. A package
// sees it by a name, or because a type that it imports leads there through any field or method. docs/decisions.md has the
// figures. An interface, like transport.Conn, leads nowhere.
func TestOnlyOnePackageCompilesTheClientsOfGoRedis(t *testing.T) {
	if race.Enabled {
		t.Skip("go list would compile everything once more without the race detector")
	}
	const (
		library = "github.com/redislock/redislock"
		client  = "github.com/redis/go-redis/v9"
		symbol  = "(*struct { *" + client + ".baseClient;" // begins the names of these functions
	)
	packages, err := exec.Command("go", "list", "-export", "-deps",
		"-f", "{{.ImportPath}} {{.Export}} {{with .Module}}{{.Version}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	weak := false                                       // the client has a weak pointer to itself
	for line := range strings.Lines(string(packages)) { // each package after those that it imports
		words := strings.Fields(line)
		name := words[0]
		if name == client {
			weak = !strings.HasPrefix(words[2], "v9.22.")
		}
		if !strings.HasPrefix(name, library) || name == library+"/internal/goredis" && weak {
			continue
		}
		compiled, err := os.ReadFile(words[1])
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(compiled, []byte(symbol)) {
			t.Errorf("%s compiles the methods of redis.Client: name an interface of what it needs instead", name)
		}
	}
}
