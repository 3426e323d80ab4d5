//go:build unix

package screen_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/screen"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// playVariable makes this program show a screen, instead of the specs: see play.
const playVariable = "REDISLOCK_TEST_SCREEN"

func init() {
	if how := os.Getenv(playVariable); how != "" {
		play(how)
	}
}

// play shows rows that are not locks, as many as how says; or else it panics where how says.
func play(how string) {
	rows := &screen.Rows{Title: "rows", Columns: []term.Column{{Name: "ROW", Fit: term.CutEnd}, {Name: "TEXT", Fit: term.CutEnd}}}
	count, _ := strconv.Atoi(how)
	for i := range max(count, 3) {
		rows.All = append(rows.All, screen.Row{Key: fmt.Sprint("row ", i), Cells: []term.Cell{
			{Text: fmt.Sprint("row ", i), Colour: term.Bold}, {Text: strings.Repeat("text ", 10), Colour: term.Red},
		}})
	}
	panicIn := func(place string) {
		if how == place {
			panic("out of order")
		}
	}
	err := screen.Run(context.Background(), os.Stdout, os.Getenv, &screen.Source{
		Every: time.Minute,
		Look:  func(context.Context, string) (*screen.Rows, error) { return rows, nil },
		Inspect: func(context.Context, string) (screen.Page, error) {
			panicIn("a question to the source")
			return func(term.Screen) []string {
				panicIn("a page")
				return []string{"a page"}
			}, nil
		},
		Free: func(context.Context, string) (*screen.Question, error) { return nil, errors.New("nothing\nis freed") },
	})
	fmt.Println("ended:", err)
	os.Exit(0)
}

var _ = Describe("Screen", func() {
	begin := func(how string) *clitest.Typist {
		GinkgoHelper()
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		cmd := exec.Command("/bin/sh", "-c", self+"; stty -a; exec cat")
		cmd.Env = clitest.Environ(playVariable + "=" + how)
		user := clitest.NewTypistIn(cmd)
		user.Resizes(24, 80)
		user.Shows(`row 2`)
		return user
	}

	DescribeTable("restores the terminal after a panic, and says what it was",
		func(where string) {
			user := begin(where)
			user.Types("\r")
			user.Sees(`panic: out of order`)
			user.Sees("[^-]icanon")
			Expect(user.Display.IsNormal()).To(BeTrue())
		},
		Entry(nil, "a question to the source"), Entry(nil, "a page"),
	)

	It("says in one line what fails", func() {
		user := begin("3")
		user.Types("f")
		user.Shows(`\nnothing: is freed$`)
		user.Types("q")
		user.Sees("ended: <nil>")
	})

	It("writes few bytes: only the lines that a key changes, and one picture for keys that come together", func() {
		user := begin("5000")
		quiet := func() int {
			GinkgoHelper()
			time.Sleep(300 * time.Millisecond)
			return len(user.Screen.Contents())
		}
		before := quiet()
		user.Types("j")
		user.Shows(`\n2 of 5000`)
		moved := quiet() - before
		before += moved
		user.Types("\x1b[6~")
		user.Shows(`\n23 of 5000`)
		scrolled := quiet() - before
		before += scrolled
		user.Types("j")
		user.Shows(`(?s)row 2 .*row 23 .*\n24 of 5000`)
		byOne := quiet() - before
		user.Types(strings.Repeat("k", 22))
		user.Shows(`(?s)row 1 .*row 22 .*\n2 of 5000`)
		user.Types(strings.Repeat("j", 22))
		user.Shows(`(?s)row 2 .*row 23 .*\n24 of 5000`)
		user.Types("k")
		began := time.Now()
		user.Types(strings.Repeat("\x1b[6~", 200))
		user.Shows(`\n4223 of 5000`)
		GinkgoWriter.Printf("a row: %d bytes, a page: %d, a line: %d, 200 pages: %v\n", moved, scrolled, byOne, time.Since(began))
		Expect(moved).To(BeNumerically("<", 500))
		Expect(byOne).To(BeNumerically("<", 600))
		Expect(scrolled).To(BeNumerically("<", 24*150))
		Expect(user.Display.Unknown()).To(BeEmpty())
	})
})
