package clitest

import (
	"os"
	"path/filepath"
	"regexp"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// ExpectGolden compares what was printed with a file of testdata, in which a name stands for whatever differs from run to
// run. REDISLOCK_TEST_UPDATE=1 writes the file.
func ExpectGolden(name, printed string) {
	ginkgo.GinkgoHelper()
	for _, r := range replacements {
		printed = r.pattern.ReplaceAllString(printed, r.with)
	}
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("REDISLOCK_TEST_UPDATE") == "1" {
		gomega.Expect(os.WriteFile(path, []byte(printed), 0o600)).To(gomega.Succeed())
	}
	wanted, err := os.ReadFile(path)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(printed).To(gomega.Equal(string(wanted)), "see %s", path)
}

var replacements = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"ttl_ms":[0-9]+`), `"ttl_ms":MS`},
	{regexp.MustCompile(`(since\\?":\\?")[0-9TZ:.-]+`), `${1}TIME`},
	{regexp.MustCompile(`(Redis|Valkey) [0-9]+\.[0-9.]+`), "Redis VERSION"},
	{regexp.MustCompile(`[0-9.]+(ms|µs)`), "DURATION"},
}
