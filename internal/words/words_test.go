package words_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/internal/words"
)

func TestWords(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "words")
}

var _ = Describe("Duration", func() {
	DescribeTable("writes a duration in two units, and never rounds up",
		func(d time.Duration, want string) { Expect(words.Duration(d)).To(Equal(want)) },
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
})

var _ = Describe("Metadata", func() {
	DescribeTable("shows an object as fields, and anything else as it is",
		func(metadata, want string) { Expect(words.Metadata(metadata)).To(Equal(want)) },
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

var _ = Describe("Escape", func() {
	DescribeTable("makes text safe to print, and leaves the rest alone",
		func(text, want string) { Expect(words.Escape(text)).To(Equal(want)) },
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

var _ = Describe("ShortToken", func() {
	DescribeTable("never shows a whole token",
		func(token, want string) { Expect(words.ShortToken(token)).To(Equal(want)) },
		Entry("of the library", "q83vEjRWeJCrze8SNFZ4kA", "q83vEj…"),
		Entry("a short one", "job-7", "jo…"),
		Entry("one that is not safe to print", "a\x1bbcd", `a\x1b…`),
	)
})
