// Package overlay builds Go sources in which some texts are replaced: the go command takes other contents of a file from an
// overlay. With it, specs and the torture run switch a protection off, and see whether anything notices.
package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces a text of a file, which must occur there exactly once.
type Edit struct{ File, Old, New string }

// Apply returns the contents of the files in the directory root with all edits, by the names in the edits, which have
// slashes. It returns an error if a text does not occur exactly once: then the sources have changed, and the edit must
// follow.
func Apply(root string, edits []Edit) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range edits {
		text, ok := files[e.File]
		if !ok {
			whole, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
			if err != nil {
				return nil, err
			}
			text = string(whole)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("%s has %d times, and not once:\n%s", e.File, n, e.Old)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}

// Write writes these contents of files in root, which must be absolute, into the directory dir. It returns the name of the
// overlay, for the flag -overlay of the go command.
func Write(root, dir string, files map[string]string) (name string, err error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range files {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(name))] = file
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}
