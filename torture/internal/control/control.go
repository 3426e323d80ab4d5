// Package control switches off protections of the library, one at a time, in the program of the workers. If the checkers do
// not notice that, they do not check the protection.
package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/redislock/redislock/internal/testing/overlay"
	"github.com/redislock/redislock/torture/internal/plan"
)

// Control is one protection, and how to switch it off.
type Control struct {
	Name     string
	Off      string   // what the library does not do any more
	Topology string   // where the protection matters
	Checks   []string // at least one of these checks must notice
	Edits    []Edit

	// Rarer is by how much rarer faults are than in other rounds, because the checks look only at calls that no fault has
	// touched for some seconds. 0 stands for 1.
	Rarer int

	// Aim are the faults in which the protection matters, in place of those of the servers, and Scene the scene of the workers
	// that does. Without them, everything happens as in other rounds.
	Aim   []plan.Choice
	Scene string
}

// Edit replaces a text of a file of the library, which occurs there once.
type Edit struct{ File, Old, New string }

// Apply returns the contents of the edited files of the library, which is in the directory root. It returns an error if
// a text does not occur exactly once: then the library has changed, and the control must follow.
func (c Control) Apply(root string) (map[string]string, error) {
	edits := make([]overlay.Edit, len(c.Edits))
	for i, e := range c.Edits {
		edits[i] = overlay.Edit(e)
	}
	files, err := overlay.Apply(root, edits)
	if err != nil {
		return nil, fmt.Errorf("control %s: %w", c.Name, err)
	}
	return files, nil
}

// Build builds the program without the protection, in the directory dir, and returns its name. root is the directory of the
// library.
func (c Control) Build(ctx context.Context, root, dir string) (program string, err error) {
	files, err := c.Apply(root)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, c.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replaced, err := overlay.Write(root, dir, files)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "torture")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", replaced, "-o", program, "./torture")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("control %s: %w\n%s", c.Name, err, out)
	}
	return program, nil
}

// Root returns the directory of the library. It works only inside its repository.
func Root(ctx context.Context) (string, error) {
	const library = "github.com/redislock/redislock"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Main}} {{.Dir}}", library).Output()
	main, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || main != "true" { // in another module, the library would be a read-only copy
		return "", errors.New("the controls need the source of the library: run them in its repository")
	}
	return dir, nil
}
