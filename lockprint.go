package redislock

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redislock/redislock/internal/fault"
)

// String describes the lock in one line, for a person: up to five of its keys and how many more there are, up to when
// it is certainly held (see [Lock.Until]), and the first characters of its token. Who knows the whole token can release
// the lock, so it is not there.
func (l *Lock) String() string {
	if !l.exists() {
		return "no lock"
	}
	held := "until"
	until := l.Until()
	if !time.Now().Before(until) {
		held = "not held since" // the end of its validity, or its release
	}
	keys, token := l.names()
	return fmt.Sprintf("lock on %s, %s %s, token %s", listKeys(keys), held, until.Format(time.RFC3339Nano), fault.Short(token))
}

// Format writes String, whatever the verb, and quoted with %q. It is part of [fmt.Formatter].
func (l *Lock) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		fmt.Fprintf(f, "%q", l.String())
		return
	}
	_, _ = io.WriteString(f, l.String())
}

// LogValue logs what String says as a group of attributes: keys, until and token. It is part of [slog.LogValuer].
func (l *Lock) LogValue() slog.Value {
	if !l.exists() {
		return slog.StringValue(l.String())
	}
	keys, token := l.names()
	return slog.GroupValue(
		slog.String("keys", listKeys(keys)), slog.Time("until", l.Until()), slog.String("token", fault.Short(token)),
	)
}
