package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// readRequest reads one request and returns it as it was encoded, and its command and arguments. A request is an array of
// bulk strings or, as typed into telnet, a line of words. It skips empty requests, as Redis does, so that args has at least
// the command.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	for len(args) == 0 {
		raw, args, err = readAnyRequest(r)
		if err != nil {
			return nil, nil, err
		}
	}
	return raw, args, nil
}

func readAnyRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	if line[0] != '*' {
		return line, strings.Fields(string(line)), nil
	}
	n, err := number(line)
	if err != nil {
		return nil, nil, err
	}
	raw = line
	for range n {
		start := len(raw)
		if raw, err = appendValue(raw, r); err != nil {
			return nil, nil, err
		}
		if raw[start] != '$' {
			return nil, nil, fmt.Errorf("faultproxy: a request with an argument of type %q", raw[start])
		}
		_, arg, _ := bytes.Cut(raw[start:], []byte("\r\n"))
		args = append(args, string(bytes.TrimSuffix(arg, []byte("\r\n"))))
	}
	return raw, args, nil
}

// readValue reads one RESP2 or RESP3 value, with all that is nested in it, and returns it as it was encoded.
func readValue(r *bufio.Reader) ([]byte, error) { return appendValue(nil, r) }

// appendValue appends the next value of r, as it is encoded, to raw.
func appendValue(raw []byte, r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	raw = append(raw, line...)

	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return raw, nil
	case '$', '=', '!':
		n, err := number(line)
		if err != nil || n < 0 { // -1 is the null of RESP2
			return raw, err
		}
		return appendBytes(raw, r, n+len("\r\n"))
	case '*', '~', '>':
		n, err := number(line)
		if err != nil {
			return nil, err
		}
		return appendValues(raw, r, n)
	case '%':
		n, err := number(line)
		if err != nil {
			return nil, err
		}
		return appendValues(raw, r, 2*n)
	case '|':
		n, err := number(line)
		if err != nil {
			return nil, err
		}
		// Attributes are no value: they describe the one that follows.
		return appendValues(raw, r, 2*n+1)
	default:
		return nil, fmt.Errorf("faultproxy: a value of unknown type %q", line[0])
	}
}

// appendValues appends n values; a negative n, a null array, is none.
func appendValues(raw []byte, r *bufio.Reader, n int) (_ []byte, err error) {
	for range n {
		if raw, err = appendValue(raw, r); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

func appendBytes(raw []byte, r *bufio.Reader, n int) ([]byte, error) {
	start := len(raw)
	raw = append(raw, make([]byte, n)...)
	_, err := io.ReadFull(r, raw[start:])
	return raw, err
}

// number returns the number in a line such as "$12\r\n".
func number(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimRight(line[1:], "\r\n")))
	if err != nil {
		return 0, fmt.Errorf("faultproxy: %w", err)
	}
	return n, nil
}

// confirmsSubscription reports whether a value is the push that answers
// SUBSCRIBE, UNSUBSCRIBE or a similar command in RESP3.
func confirmsSubscription(value []byte) bool {
	if value[0] != '>' {
		return false
	}
	kind, _, _ := bytes.Cut(value, []byte("\r\n"))
	_, name, _ := bytes.Cut(value[len(kind)+len("\r\n"):], []byte("\r\n")) // after its length
	name, _, _ = bytes.Cut(name, []byte("\r\n"))
	return bytes.HasSuffix(bytes.ToLower(name), []byte("subscribe"))
}
