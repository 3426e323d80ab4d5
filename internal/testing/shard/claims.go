package shard

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// Elsewhere is why a process skips a spec that another process runs.
const Elsewhere = "another process runs it"

// unitNames gives names to units, which one process runs as a whole: a spec, or all specs of an ordered container.
type unitNames map[string]int

// unit returns the name of the unit of a spec. Each spec must be passed once: two that have the same text at the same place
// are the first and the second of them, in every process.
func (u unitNames) unit(spec types.SpecReport) string {
	if spec.IsInOrderedContainer {
		return spec.ContainerHierarchyLocations[0].String()
	}
	name := fmt.Sprint(spec.ContainerHierarchyLocations, spec.LeafNodeLocation, spec.FullText())
	u[name]++
	return fmt.Sprint(name, u[name])
}

// claims are the units that the processes of a suite have begun, each a file in a directory, made by the first to claim it.
type claims struct {
	dir   string
	units unitNames
	mine  map[string]bool // the units asked for so far, and whether this process has them
}

func newClaims(dir string) *claims {
	return &claims{dir: dir, units: unitNames{}, mine: map[string]bool{}}
}

// claim reports whether this process is the one that runs the spec.
func (c *claims) claim(spec types.SpecReport) bool {
	unit := c.units.unit(spec)
	mine, known := c.mine[unit]
	if !known {
		hash := sha256.Sum256([]byte(unit))
		file, err := os.OpenFile(filepath.Join(c.dir, hex.EncodeToString(hash[:])), os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = file.Close()
			mine = true
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			ginkgo.Fail(err.Error())
		}
		c.mine[unit] = mine
	}
	return mine
}

// claimed returns how many units have been claimed.
func claimed(t *testing.T, dir string) int {
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	return len(files)
}
