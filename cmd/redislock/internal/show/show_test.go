package show

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
)

func TestShow(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "show")
}

var _ = Describe("TTL", func() {
	It("says none for a key without expiry", func() {
		Expect(TTL(-1)).To(Equal("none"))
		Expect(TTL(time.Minute)).To(Equal("1m00s"))
	})
})

var _ = Describe("InTheWay", func() {
	const metadata = `{"host":"api-3","pid":4121,"user":"bob","command":"./ship 7"}`

	DescribeTable("says who holds the key, for how long, and how many are ahead",
		func(e redislock.RefusedError, want string) { Expect(InTheWay(&e)).To(Equal(want)) },
		Entry(nil, redislock.RefusedError{Token: "t", Metadata: metadata, TTL: 12 * time.Second},
			"held by bob@api-3, pid 4121 (./ship 7), 12s left"),
		Entry("in line", redislock.RefusedError{Token: "t", Metadata: `{"host":"h","pid":1}`, TTL: time.Minute, Ahead: 2},
			"held by h, pid 1, 1m00s left; 2 ahead of you"),
		Entry("without metadata", redislock.RefusedError{Token: "t", TTL: -1}, "held by t, without an expiry"),
		Entry("with empty metadata", redislock.RefusedError{Token: "t", Metadata: "{}", TTL: -1}, "held by t, without an expiry"),
		Entry("with text", redislock.RefusedError{Token: "t", Metadata: "job\x1b 7", TTL: -1}, `held by job\x1b 7, without an expiry`),
		Entry("of bsm/redislock", redislock.RefusedError{Token: `q83vEjRWeJCrze8SNFZ4kA{"host":`, Metadata: `"h","pid":1}`, TTL: time.Second},
			"held by h, pid 1, 1.0s left"),
		Entry("no lock", redislock.RefusedError{TTL: -1}, "held by something that is not a lock, without an expiry"),
		Entry("nobody, but a line", redislock.RefusedError{Ahead: 3}, "it is the turn of others; 3 ahead of you"),
	)
})

var _ = Describe("Blocker", func() {
	const metadata, never = `{"host":"api-3","pid":4121,"user":"bob"}`, time.Duration(-1)

	DescribeTable("says which key is in the way, who holds it, and how fresh that is",
		func(e redislock.RefusedError, renewed, passed time.Duration, want string) {
			e.Key = "a\x1b"
			Expect(Blocker(&e, renewed, passed)).To(Equal(want))
		},
		Entry(nil, redislock.RefusedError{Token: "q83vEjRW", Metadata: metadata, TTL: 12 * time.Second}, never, 2500*time.Millisecond,
			`a\x1b: bob@api-3 q83vEj…, 9.5s left`),
		Entry("renewed", redislock.RefusedError{Token: "q83vEjRW", Metadata: metadata, TTL: 12 * time.Second}, 75*time.Second, time.Second,
			`a\x1b: bob@api-3 q83vEj…, renewed 1m15s ago`),
		Entry("shared", redislock.RefusedError{Token: "q83vEj", Metadata: "job 7", Holders: 3, TTL: -1}, never, time.Second,
			`a\x1b: job 7 q83vEj and 2 more, without an expiry`),
		Entry("over", redislock.RefusedError{Token: "q83vEj", TTL: time.Second}, never, 2*time.Second, `a\x1b: q83vEj, 1ms left`),
		Entry("without a name", redislock.RefusedError{Token: "q83vEj", Metadata: `{"job":7}`, TTL: time.Second}, never, time.Duration(0),
			`a\x1b: job=7 q83vEj, 1.0s left`),
		Entry("no lock", redislock.RefusedError{TTL: -1}, never, time.Second, `a\x1b: something that is not a lock`),
		Entry("nobody, but a line", redislock.RefusedError{Ahead: 3}, never, time.Second, `a\x1b: it is the turn of others in line`),
	)
})

var _ = Describe("Process", func() {
	now := time.Now()
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

	It("is one for all its waiters, in the order of the first waiters, with the metadata of the first", func() {
		Expect(ByProcess(nil)).To(BeEmpty())
		Expect(ByProcess([]redislock.Waiter{
			{Process: "p", Metadata: "m", Since: ago(30)}, {Process: "q", Since: ago(20), Late: true},
			{Process: "p", Metadata: "n", Since: ago(10), Late: true}, {Process: "p", Since: ago(5)},
		})).To(Equal([]Process{
			{Name: "p", Metadata: "m", Waiters: 3, Late: 1, Since: ago(30)}, {Name: "q", Waiters: 1, Late: 1, Since: ago(20)},
		}))
	})

	DescribeTable("says which process it is",
		func(metadata, want string) {
			Expect(Process{Name: "q83vEjRWeJCrze8SNFZ4kA", Metadata: metadata}.String()).To(Equal(want))
		},
		Entry("by host and pid", `{"host":"api-3","pid":4121}`, "api-3, pid 4121"),
		Entry("by user and command", `{"host":"api-3","pid":4121,"user":"bob","command":"./ship 7"}`, "bob@api-3, pid 4121 (./ship 7)"),
		Entry("without metadata", "", "process q83vEjRW…"),
		Entry("with empty metadata", "{}", "process q83vEjRW…"),
		Entry("without a pid", `{"host":"api-3"}`, "host=api-3, process q83vEjRW…"),
		Entry("with only a pid", `{"pid":4121}`, "pid=4121, process q83vEjRW…"),
		Entry("with text", "job\x1b 7", `job\x1b 7, process q83vEjRW…`),
	)

	It("escapes its name", func() {
		Expect(Process{Name: "\x1b[2J"}.String()).To(Equal(`process \x1b[2J`))
	})

	DescribeTable("says how many wait, and for how long",
		func(waiters, late int, want string) {
			Expect(Process{Waiters: waiters, Late: late, Since: ago(42)}.Waiting(now)).To(Equal(want))
		},
		Entry("one", 1, 0, "1, for 42s"),
		Entry("one that is late", 1, 1, "1, for 42s, late"),
		Entry("several", 3, 0, "3, the first for 42s"),
		Entry("several, of which some are late", 3, 2, "3, the first for 42s, 2 late"),
		Entry("several that are late", 3, 3, "3, the first for 42s, late"),
	)

	It("never says that somebody came in the future", func() {
		Expect(Process{Waiters: 1, Since: now.Add(time.Second)}.Waiting(now)).To(Equal("1, for 0ms"))
	})
})

var _ = Describe("WriteJSON", func() {
	written := func(value any) string {
		GinkgoHelper()
		var out bytes.Buffer
		Expect(WriteJSON(&out, value)).To(Succeed())
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
		Expect(InBase64("a\xff")).To(Equal("Yf8="))
		Expect(InBase64("é")).To(BeEmpty())
	})
})
