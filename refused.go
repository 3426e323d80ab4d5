package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// RefusedError is the error of a refused obtain with [Options.Explain]. It says which key blocks the call and who holds
// that key. It matches [ErrNotObtained].
//
// Key is the first key that another token holds. If no key is held, it is the turn of callers that wait in line; Key is
// then the first key that they wait for. Key is "" if nothing blocked the call any more when the library asked, or if
// Redis did not answer in time or refused the question.
type RefusedError struct {
	Key string
	// Token is the token of the holder; "" if nobody holds Key. Show only a few characters of it: anyone who knows the
	// whole token can release the lock.
	Token    string
	Metadata string        // the metadata of the holder
	TTL      time.Duration // the remaining ttl of Key; -1 for a key without expiry, 0 if nobody holds Key
	Ahead    int           // how many callers wait in line for Key before this call
}

// Error names the key and its holder. It shows at most the first six characters of the token.
func (e *RefusedError) Error() string {
	if e.Key == "" {
		return ErrNotObtained.Error()
	}
	if e.Token == "" && e.TTL == 0 {
		return fmt.Sprintf("%v: others wait in line for %q, %d of them before this call", ErrNotObtained, e.Key, e.Ahead)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%v: %q is held", ErrNotObtained, e.Key)
	if e.Token != "" {
		fmt.Fprintf(&text, " by %s", printable(short(e.Token)))
	}
	if e.Metadata != "" {
		fmt.Fprintf(&text, " (%s)", printable(e.Metadata))
	}
	if e.TTL < 0 {
		text.WriteString(" without expiry")
	} else {
		fmt.Fprintf(&text, " for %v more", e.TTL)
	}
	if e.Ahead > 0 {
		fmt.Fprintf(&text, ", %d ahead in line", e.Ahead)
	}
	return text.String()
}

// Is reports whether target is ErrNotObtained.
func (e *RefusedError) Is(target error) bool { return target == ErrNotObtained }

// printable returns text that another process has stored. It quotes text that could forge log lines or control a terminal.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

// blocker asks Redis what blocks the obtain.
func (o *obtaining) blocker(ctx context.Context) *RefusedError {
	why := new(RefusedError)
	if o.spread != nil {
		*why = RefusedError(o.spread.Blocker(ctx))
	} else {
		*why = RefusedError(o.single.Blocker(ctx))
	}
	return why
}

// refused reports a refusal to the Tracer. With Explain, it first asks what blocks the first try.
func (o *obtaining) refused(ctx context.Context) {
	e := Refused{Keys: o.keys, Try: o.progress().Tries}
	if o.opt.Explain && o.why == nil {
		o.why = o.blocker(ctx)
		e.Key, e.Holder, e.Metadata, e.TTL, e.Ahead = o.why.Key, o.why.Token, o.why.Metadata, o.why.TTL, o.why.Ahead
		o.explained = o.progress().Tries
	}
	tell(ctx, o.client.tracer.Refused, e)
}

// explain returns the error of an obtain that has ended. With Explain, and if the last try was refused, that is a
// RefusedError. After more than one try, it asks again; if nothing blocks the obtain any more, the error says what
// blocked the first try.
func (o *obtaining) explain(ctx context.Context, err error) error {
	if o.why == nil || o.progress().Failure != nil || !errors.Is(err, ErrNotObtained) {
		return err
	}
	if o.progress().Tries > o.explained || o.cut != nil {
		if now := o.blocker(ctx); now.Key != "" {
			o.why = now
		}
	}
	if o.cut != nil {
		return fmt.Errorf("%w: %w", o.why, o.cut)
	}
	return o.why
}
