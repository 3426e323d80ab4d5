package main

import (
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// expectGolden compares what was printed with a file of testdata, in which what is never twice the same has a name in its
// place. REDISLOCK_TEST_UPDATE=1 writes the file.
func expectGolden(name, printed string) {
	GinkgoHelper()
	for _, r := range replacements {
		printed = r.pattern.ReplaceAllString(printed, r.with)
	}
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("REDISLOCK_TEST_UPDATE") == "1" {
		Expect(os.WriteFile(path, []byte(printed), 0o600)).To(Succeed())
	}
	wanted, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	Expect(printed).To(Equal(string(wanted)), "see %s", path)
}

var replacements = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"ttl_ms":[0-9]+`), `"ttl_ms":MS`},
	{regexp.MustCompile(`"waiting_since":"[0-9TZ:.-]+"`), `"waiting_since":"TIME"`},
	{regexp.MustCompile(`(Redis|Valkey) [0-9]+\.[0-9.]+`), "Redis VERSION"},
	{regexp.MustCompile(`[0-9.]+(ms|µs)`), "DURATION"},
}
