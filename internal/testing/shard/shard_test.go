package shard

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// A spec of this package writes its process into a file of its own in that directory, and fails if there is one.
const ranVariable = "REDISLOCK_TEST_RAN"

func ran(name string) {
	ginkgo.GinkgoHelper()
	file, err := os.OpenFile(filepath.Join(os.Getenv(ranVariable), name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), "it runs twice")
	_, err = file.WriteString(strconv.Itoa(os.Getpid()))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(file.Close()).To(gomega.Succeed())
}

var _ = ginkgo.Describe("Specs that wait", ginkgo.Label("wait"), func() {
	for i := range 40 {
		ginkgo.It("run", func() {
			time.Sleep(50 * time.Millisecond)
			ran(fmt.Sprintf("wait-%d", i))
		})
	}
	ginkgo.Describe("in order", ginkgo.Ordered, func() {
		for i := range 4 {
			ginkgo.It(fmt.Sprintf("%d", i), func() {
				if i > 0 {
					gomega.Expect(filepath.Join(os.Getenv(ranVariable), fmt.Sprintf("order-%d", i-1))).To(gomega.BeAnExistingFile())
				}
				ran(fmt.Sprintf("order-%d", i))
			})
		}
	})
})

var _ = ginkgo.Describe("Specs that work", func() {
	for i := range 5 {
		ginkgo.It("run", func() { ran(fmt.Sprintf("work-%d", i)) })
	}
})

func TestEverySpecRunsOnceInSomeProcess(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	if Name() == "" {
		goal, interval = 200*time.Millisecond, 10*time.Millisecond
		if err := os.Setenv(ranVariable, t.TempDir()); err != nil { //nolint:usetesting // t.Setenv forbids t.Parallel
			t.Fatal(err)
		}
	}
	suites := Suites{"wait": {Labels: "wait"}, "work": {Labels: "!wait", FakeTime: true}, "none": {Labels: "nobody"}}
	suites.Run(t, 4, RunSpecs)
	if Name() != "" {
		return
	}
	processes, specs := map[string]map[string]bool{}, map[string]int{}
	files, err := os.ReadDir(os.Getenv(ranVariable))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		kind, _, _ := strings.Cut(file.Name(), "-")
		process, err := os.ReadFile(filepath.Join(os.Getenv(ranVariable), file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if processes[kind] == nil {
			processes[kind] = map[string]bool{}
		}
		processes[kind][string(process)] = true
		specs[kind]++
	}
	if specs["wait"] != 40 || specs["order"] != 4 || specs["work"] != 5 {
		t.Errorf("these specs have run: %v", specs)
	}
	if n := len(processes["wait"]); n < 2 || n > 4 {
		t.Errorf("%d processes share the specs that wait", n)
	}
	if len(processes["order"]) != 1 || len(processes["work"]) != 1 {
		t.Errorf("the processes are %v", processes)
	}
}

func TestOneProcessClaimsASpec(t *testing.T) {
	at := func(line int) types.CodeLocation { return types.CodeLocation{FileName: "a_test.go", LineNumber: line} }
	spec := func(line int, text string) types.SpecReport {
		return types.SpecReport{LeafNodeLocation: at(line), LeafNodeText: text}
	}
	ordered := func(text string) types.SpecReport {
		return types.SpecReport{
			IsInOrderedContainer: true, ContainerHierarchyLocations: []types.CodeLocation{at(9)},
			LeafNodeLocation: at(10), LeafNodeText: text,
		}
	}
	specs := []types.SpecReport{spec(1, "a"), spec(1, "a"), spec(1, "b"), spec(2, "a"), ordered("c"), ordered("d")}
	dir := t.TempDir()
	first, second := newClaims(dir), newClaims(dir)
	for i, s := range specs {
		if i == 1 || i == 4 { // the second goes first
			if !second.claim(s) || first.claim(s) {
				t.Errorf("spec %d is not the second's alone", i)
			}
			continue
		}
		if first.claim(s) == second.claim(s) {
			t.Errorf("spec %d has both or none", i)
		}
	}
	if !second.claim(specs[5]) {
		t.Error("an ordered container is divided")
	}
	if got := claimed(t, dir); got != 5 {
		t.Errorf("%d units are claimed, of 5", got)
	}
}

func TestASuiteIsLateIfTheRestTakesLong(t *testing.T) {
	for _, c := range []struct {
		ago       time.Duration
		processes int
		claimed   int
		late      bool
	}{
		{ago: 100 * time.Millisecond, processes: 1, claimed: 0},   // nothing is known yet
		{ago: 2300 * time.Millisecond, processes: 1, claimed: 20}, // 2 s for 20, so 8 s for 80
		{ago: 2300 * time.Millisecond, processes: 1, claimed: 10, late: true},
		{ago: 2300 * time.Millisecond, processes: 2, claimed: 20},
		{ago: 2300 * time.Millisecond, processes: 2, claimed: 10, late: true},
		{ago: time.Hour, processes: 1, claimed: 100},
	} {
		var begun []time.Time
		for range c.processes {
			begun = append(begun, time.Now().Add(-c.ago))
		}
		if late(begun, c.claimed, 100, 10*time.Second) != c.late {
			t.Errorf("%+v", c)
		}
	}
}
