//go:build unix

package guardrules_test

import (
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/internal/testing/spec"
)

// A clock is the wall clock of a server. A library that the torture run has as well moves it, by LD_PRELOAD.
type clock struct {
	file string
	env  []string // of the server
}

// newClock returns a clock that is right. It skips the spec where clocks cannot be moved.
func newClock() *clock {
	GinkgoHelper()
	if _, err := exec.LookPath("cc"); err != nil || runtime.GOOS != "linux" {
		Skip("only Linux with a C compiler can move the clock of a server")
	}
	dir := GinkgoT().TempDir()
	library := filepath.Join(dir, "clock.so")
	source := spec.Path("torture/internal/topology/clock.c.txt")
	output, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-x", "c", "-o", library, source).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)
	c := &clock{file: filepath.Join(dir, "clock")}
	c.env = []string{"LD_PRELOAD=" + library, "TORTURE_CLOCK=" + c.file}
	c.set(0)
	return c
}

// set makes the clock that much ahead of the true time. The write is atomic enough: it is one page, and no server starts
// meanwhile.
func (c *clock) set(ahead time.Duration) {
	GinkgoHelper()
	now := time.Now()
	order := binary.NativeEndian
	state := order.AppendUint64(nil, 0) // even: nobody writes
	state = order.AppendUint64(state, uint64(now.UnixNano()))
	state = order.AppendUint64(state, uint64(now.Add(ahead).UnixNano()))
	state = order.AppendUint64(state, math.Float64bits(1))
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600) // not truncated: the server has it mapped
	Expect(err).NotTo(HaveOccurred())
	_, err = file.Write(state)
	Expect(err).NotTo(HaveOccurred())
	Expect(file.Close()).To(Succeed())
}
