package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("escape", func() {
	DescribeTable("makes text safe to print, and leaves the rest alone",
		func(text, want string) { Expect(escape(text)).To(Equal(want)) },
		Entry("plain", "{order:7}:stock", "{order:7}:stock"),
		Entry("a space", "a b", "a b"),
		Entry("other scripts", "ключ/鍵/é", "ключ/鍵/é"),
		Entry("line ends", "a\r\nb\tc", `a\r\nb\tc`),
		Entry("a terminal's commands", "\x1b[2J\x07\x7f", `\x1b[2J\x07\x7f`),
		Entry("C1 controls", "\u009b31m", `\u009b31m`),
		Entry("what turns the direction", "a\u202eb\u2066", `a\u202eb\u2066`),
		Entry("what cannot be seen", "\u200b\u00a0\ufeff\u3164", `\u200b\u00a0\ufeff\u3164`),
		Entry("beyond four digits", "\U000e0041", `\U000e0041`),
		Entry("bytes that are no text", "\xff\xc3", `\xff\xc3`),
		Entry("a true replacement character", "\ufffd", `\ufffd`),
		Entry("the backslash, so that the text is told from its escape", `\x1b`, `\\x1b`),
		Entry("nothing", "", ""),
	)
})

var _ = Describe("readable", func() {
	DescribeTable("writes a duration in two units, and never rounds up",
		func(d time.Duration, want string) { Expect(readable(d)).To(Equal(want)) },
		Entry(nil, 0*time.Second, "0ms"),
		Entry(nil, 999999*time.Microsecond, "999ms"),
		Entry(nil, time.Second, "1.0s"),
		Entry(nil, 9990*time.Millisecond, "9.9s"),
		Entry(nil, 59999*time.Millisecond, "59s"),
		Entry(nil, 252*time.Second, "4m12s"),
		Entry(nil, 2*time.Hour+3*time.Minute+59*time.Second, "2h03m"),
		Entry(nil, 76*time.Hour, "3d04h"),
		Entry(nil, -1500*time.Millisecond, "-1.5s"),
	)

	It("says none for a key without expiry", func() {
		Expect(readableTTL(-1)).To(Equal("none"))
		Expect(readableTTL(time.Minute)).To(Equal("1m00s"))
	})
})

var _ = Describe("showMetadata", func() {
	DescribeTable("shows an object as fields, and anything else as it is",
		func(metadata, want string) { Expect(showMetadata(metadata)).To(Equal(want)) },
		Entry("in their order", `{"host":"api-3","pid":4121,"a":true}`, "host=api-3 pid=4121 a=true"),
		Entry("quoted where that matters", `{"cmd":"a b","e":"","q":"x\"y"}`, `cmd="a b" e="" q="x\"y"`),
		Entry("nested", `{"a":{"b":[1, 2]}}`, `a={"b":[1, 2]}`),
		Entry("escaped", `{"a":"\u001b[2J","b\n":"\u202e"}`, `a=\x1b[2J b\n=\u202e`),
		Entry("large numbers to the last digit", `{"n":12345678901234567890}`, "n=12345678901234567890"),
		Entry("text", "step: 3", "step: 3"),
		Entry("text with a line end", "a\nb", `a\nb`),
		Entry("an array", `[1]`, "[1]"),
		Entry("an object that was cut", `{"host":"api-3","pi`, `{"host":"api-3","pi`),
		Entry("nothing", "", ""),
		Entry("an empty object", "{}", ""),
	)
})

var _ = Describe("writeJSON", func() {
	written := func(value any) string {
		GinkgoHelper()
		var out bytes.Buffer
		Expect(writeJSON(&out, value)).To(Succeed())
		return out.String()
	}

	It("writes one line that says the same, without a character that a terminal obeys", func() {
		const text = "<a>&\x1b[2J\u009b\u202e\U000e0041é\u2028\x7f"
		line := written(map[string]string{"k": text})
		Expect(line).To(Equal(`{"k":"<a>&\u001b[2J\u009b\u202e\udb40\udc41é\u2028\u007f"}` + "\n"))
		var back map[string]string
		Expect(json.Unmarshal([]byte(line), &back)).To(Succeed())
		Expect(back["k"]).To(Equal(text))
	})

	It("has a replacement for bytes that are no text", func() {
		Expect(written("a\xff")).To(Equal(`"a\ufffd"` + "\n"))
		Expect(written(json.RawMessage("\"a\xff\u202e\""))).To(Equal(`"a\ufffd\u202e"` + "\n"))
		Expect(inBase64("a\xff")).To(Equal("Yf8="))
		Expect(inBase64("é")).To(BeEmpty())
	})
})

var _ = Describe("table", func() {
	made := func() *table {
		t := &table{columns: []column{
			{name: "KEY", shrink: true}, {name: "TTL", right: true}, {name: "MORE", shrink: true},
		}}
		t.add("order:7", "9.8s", "host=api-3 pid=4121")
		t.rows = append(t.rows, []cell{{text: "鍵", colour: bold}, {text: "4m12s", colour: red}, {}})
		return t
	}
	written := func(s screen, head bool) string {
		GinkgoHelper()
		var out strings.Builder
		Expect(made().write(&out, s, head)).To(Succeed())
		return out.String()
	}

	It("is aligned by columns of the terminal, and has no space at the end of a line", func() {
		Expect(written(screen{}, true)).To(Equal("" +
			"KEY        TTL  MORE\n" +
			"order:7   9.8s  host=api-3 pid=4121\n" +
			"鍵       4m12s\n"))
	})

	It("cuts the widest columns that may be cut until it fits a terminal", func() {
		Expect(written(screen{columns: 26}, true)).To(Equal("" +
			"KEY        TTL  MORE\n" +
			"order:7   9.8s  host=api-…\n" +
			"鍵       4m12s\n"))
	})

	It("cuts nothing in a file, where a long text pushes the rest of its own line only", func() {
		t := &table{columns: []column{{name: "KEY", shrink: true}, {name: "TTL", right: true}}}
		t.add(strings.Repeat("k", 100), "1.0s")
		t.add("k", "2.0s")
		var out strings.Builder
		Expect(t.write(&out, screen{}, false)).To(Succeed())
		Expect(out.String()).To(Equal(strings.Repeat("k", 100) + "  1.0s\nk" + strings.Repeat(" ", 61) + "2.0s\n"))
	})

	It("cuts nothing to less than eight columns", func() {
		Expect(written(screen{columns: 5}, false)).To(Equal("" +
			"order:7   9.8s  host=ap…\n" +
			"鍵       4m12s\n"))
	})

	It("has colours only where they are wanted, and aligns beside them", func() {
		Expect(written(screen{}, true)).NotTo(ContainSubstring("\x1b"))
		Expect(written(screen{coloured: true}, false)).To(Equal("" +
			"order:7   9.8s  host=api-3 pid=4121\n" +
			"\x1b[1m鍵\x1b[0m       \x1b[31m4m12s\x1b[0m\n"))
	})

	It("never cuts a wide character in two", func() {
		Expect(shorten("鍵鍵鍵", 4)).To(Equal("鍵…"))
		Expect(shorten("鍵鍵鍵", 6)).To(Equal("鍵鍵鍵"))
		Expect(shorten("e\u0301e\u0301", 2)).To(Equal("e\u0301e\u0301"))
	})
})
