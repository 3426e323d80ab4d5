package faultproxy

import (
	"bufio"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadValueFindsTheEnd(t *testing.T) {
	for _, value := range []string{
		"+OK\r\n",
		"-ERR no\r\n",
		":-12\r\n",
		"$5\r\na\r\nbc\r\n",
		"$0\r\n\r\n",
		"$-1\r\n",
		"*-1\r\n",
		"*0\r\n",
		"*2\r\n*1\r\n$1\r\na\r\n:1\r\n",
		"_\r\n",
		"#t\r\n",
		",1.5\r\n",
		"(3492890328409238509324850943850943825024385\r\n",
		"!5\r\nERR x\r\n",
		"=7\r\ntxt:abc\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n",
		"~2\r\n+a\r\n+b\r\n",
		">2\r\n+message\r\n+x\r\n",
		"|1\r\n+ttl\r\n:10\r\n*1\r\n+a\r\n",
	} {
		rest := "+next\r\n"
		r := bufio.NewReader(iotest.OneByteReader(strings.NewReader(value + rest)))
		if got, err := readValue(r); string(got) != value || err != nil {
			t.Errorf("readValue(%q) = %q, %v", value, got, err)
			continue
		}
		if left, _ := io.ReadAll(r); string(left) != rest {
			t.Errorf("readValue(%q) leaves %q", value, left)
		}
		for n := range len(value) {
			if got, err := readValue(bufio.NewReader(strings.NewReader(value[:n]))); err == nil {
				t.Errorf("readValue(%q) = %q without an error", value[:n], got)
			}
		}
	}
	for _, bad := range []string{"\r\n", "?1\r\n", "$x\r\n", "*x\r\n", "*1\r\nx\r\n"} {
		if got, err := readValue(bufio.NewReader(strings.NewReader(bad))); err == nil {
			t.Errorf("readValue(%q) = %q without an error", bad, got)
		}
	}
}

func TestReadRequest(t *testing.T) {
	for request, want := range map[string][]string{
		encode("SET", "k\r\n$1", ""): {"SET", "k\r\n$1", ""},
		"ping  hello\r\n":            {"ping", "hello"},
	} {
		r := bufio.NewReader(iotest.OneByteReader(strings.NewReader("\r\n*0\r\n" + request + request)))
		for range 2 {
			raw, args, err := readRequest(r)
			if string(raw) != request || !slices.Equal(args, want) || err != nil {
				t.Errorf("readRequest(%q) = %q, %q, %v", request, raw, args, err)
			}
		}
	}
	if _, _, err := readRequest(bufio.NewReader(strings.NewReader("*1\r\n:1\r\n"))); err == nil {
		t.Error("readRequest accepts an argument that is not a bulk string")
	}
}

func TestConfirmsSubscription(t *testing.T) {
	for value, want := range map[string]bool{
		">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n":       true,
		">3\r\n$12\r\npunsubscribe\r\n$1\r\na\r\n:0\r\n":   true,
		">3\r\n$7\r\nmessage\r\n$9\r\nsubscribe\r\n+x\r\n": false,
		"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n":       false,
		">0\r\n": false,
	} {
		if got := confirmsSubscription([]byte(value)); got != want {
			t.Errorf("confirmsSubscription(%q) = %v", value, got)
		}
	}
}
