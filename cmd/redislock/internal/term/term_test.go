package term_test

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

func TestTerm(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "term")
}

var _ = Describe("ScreenOf", func() {
	DescribeTable("has colours on a terminal, unless somebody objects",
		func(noColor, terminal string, coloured bool) {
			tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
			if err != nil {
				Skip(err.Error())
			}
			DeferCleanup(tty.Close)
			variables := map[string]string{"NO_COLOR": noColor, "TERM": terminal}
			screen := term.ScreenOf(tty, func(name string) string { return variables[name] })
			Expect(screen.Coloured).To(Equal(coloured))
		},
		Entry("a terminal", "", "xterm", true),
		Entry("a dumb one", "", "dumb", false),
		Entry("NO_COLOR", "1", "xterm", false),
	)

	It("has no colours and no size in a file", func() {
		Expect(term.ScreenOf(new(strings.Builder), os.Getenv)).To(Equal(term.Screen{}))
	})
})

var _ = Describe("Table", func() {
	made := func() *term.Table {
		t := &term.Table{Columns: []term.Column{
			{Name: "KEY", Fit: term.CutEnd}, {Name: "TTL", Right: true}, {Name: "MORE", Fit: term.CutEnd},
		}}
		t.Add("order:7", "9.8s", "host=api-3 pid=4121")
		t.Rows = append(t.Rows, []term.Cell{{Text: "鍵", Colour: term.Bold}, {Text: "4m12s", Colour: term.Red}, {}})
		return t
	}
	written := func(s term.Screen, head bool) string {
		GinkgoHelper()
		var out strings.Builder
		Expect(made().Write(&out, s, head)).To(Succeed())
		return out.String()
	}

	It("is aligned by columns of the terminal, and has no space at the end of a line", func() {
		Expect(written(term.Screen{}, true)).To(Equal("" +
			"KEY        TTL  MORE\n" +
			"order:7   9.8s  host=api-3 pid=4121\n" +
			"鍵       4m12s\n"))
	})

	It("cuts the widest columns that may be cut until it fits a terminal", func() {
		Expect(written(term.Screen{Columns: 26}, true)).To(Equal("" +
			"KEY        TTL  MORE\n" +
			"order:7   9.8s  host=api-…\n" +
			"鍵       4m12s\n"))
	})

	It("cuts nothing in a file, where a long text pushes the rest of its own line only", func() {
		t := &term.Table{Columns: []term.Column{{Name: "KEY", Fit: term.CutEnd}, {Name: "TTL", Right: true}}}
		t.Add(strings.Repeat("k", 100), "1.0s")
		t.Add("k", "2.0s")
		var out strings.Builder
		Expect(t.Write(&out, term.Screen{}, false)).To(Succeed())
		Expect(out.String()).To(Equal(strings.Repeat("k", 100) + "  1.0s\nk" + strings.Repeat(" ", 61) + "2.0s\n"))
	})

	It("cuts no column to less than nine, but the end of each line at the edge of the screen", func() {
		Expect(written(term.Screen{Columns: 22}, false)).To(Equal("" +
			"order:7   9.8s  host=…\n" +
			"鍵       4m12s\n"))
		Expect(written(term.Screen{Columns: 12}, false)).To(Equal("" +
			"order:7  9.…\n" +
			"鍵       4m…\n"))
	})

	It("leaves columns out when cutting is not enough, and gives their room to the others", func() {
		t := &term.Table{Columns: []term.Column{
			{Name: "KEY", Fit: term.CutMiddle}, {Name: "PID", Right: true, Drop: 2}, {Name: "AGE", Right: true, Drop: 1}, {Name: "TTL"},
		}}
		t.Add("backup:customer:000017", "4121", "4m12s", "9.8s")
		fitted := func(columns int) string {
			var out strings.Builder
			Expect(t.Write(&out, term.Screen{Columns: columns}, false)).To(Succeed())
			return out.String()
		}
		Expect(fitted(30)).To(Equal("backu…00017  4121  4m12s  9.8s\n"))
		Expect(fitted(29)).To(Equal("backu…0017  4121  4m12s  9.8s\n"))
		Expect(fitted(26)).To(Equal("backup…000017  4m12s  9.8s\n"))
		Expect(fitted(20)).To(Equal("backup:…000017  9.8s\n"))
	})

	It("breaks the last column between words", func() {
		t := &term.Table{Columns: []term.Column{{}, {Fit: term.Wrap}}}
		t.Add("warn", "appendfsync is everysec: a crash loses a-very-long-word-of-locks")
		var out strings.Builder
		Expect(t.Write(&out, term.Screen{Columns: 27}, false)).To(Succeed())
		Expect(out.String()).To(Equal("" +
			"warn  appendfsync is\n" +
			"      everysec: a crash\n" +
			"      loses\n" +
			"      a-very-long-word-of-l\n" +
			"      ocks\n"))
	})

	It("has colours only where they are wanted, and aligns beside them", func() {
		Expect(written(term.Screen{}, true)).NotTo(ContainSubstring("\x1b"))
		Expect(written(term.Screen{Coloured: true}, false)).To(Equal("" +
			"order:7   9.8s  host=api-3 pid=4121\n" +
			"\x1b[1m鍵\x1b[0m       \x1b[31m4m12s\x1b[0m\n"))
	})

	It("never cuts a wide character in two", func() {
		Expect(term.Shorten("鍵鍵鍵", 4)).To(Equal("鍵…"))
		Expect(term.Shorten("鍵鍵鍵", 6)).To(Equal("鍵鍵鍵"))
		Expect(term.Shorten("e\u0301e\u0301", 2)).To(Equal("e\u0301e\u0301"))
	})
})
