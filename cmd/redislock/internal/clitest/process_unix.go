//go:build unix

package clitest

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// Written returns the content of a file, once it is there with a whole line.
func Written(path string) string {
	ginkgo.GinkgoHelper()
	var text []byte
	gomega.Eventually(func() string {
		text, _ = os.ReadFile(path)
		return string(text)
	}).Should(gomega.HaveSuffix("\n"))
	return strings.TrimSpace(string(text))
}

// PidIn returns the number in a file, once it is there.
func PidIn(path string) int {
	ginkgo.GinkgoHelper()
	pid, err := strconv.Atoi(Written(path))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return pid
}

// Alive reports whether there is such a process, and it is no zombie.
func Alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
