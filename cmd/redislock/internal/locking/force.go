package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/words"
)

// ForceQuestion is the question below the Facts of a Force.
const ForceQuestion = "Release it nevertheless?"

// ErrNothingReleased is the error after a no.
var ErrNothingReleased = errors.New("nothing was released")

// ReleasePatience returns how long a command tries that releases locks. A run tries for longer, because nobody can release
// its locks again.
func ReleasePatience() *Patience {
	return &Patience{Limit: 10 * time.Second, Limited: true, Verbose: true}
}

// Force releases keys from those who held them when it was prepared, and from nobody who comes later.
type Force struct {
	Held []redislock.Status // what can be released
	Done []string           // what needs no release: keys that are free, or were freed because nobody held them

	session *connect.Session
	tokens  [][]string // who holds each
}

// PrepareForce finds out who holds keys. It frees shared keys that nobody holds. It returns an error if a key does not look
// like a lock, unless lax allows that. Errors can be printed; before one, it may have freed keys, as Done says.
func PrepareForce(ctx context.Context, s *connect.Session, keys []string, lax bool) (*Force, error) {
	var statuses []redislock.Status
	err := Insist(ctx, func(ctx context.Context) (err error) {
		statuses, err = s.Inspect(ctx, withoutRepeats(keys))
		return err
	}, func(why error) { s.Complain(fmt.Errorf("still trying: %w", why)) })
	if err != nil {
		return nil, ReleasePatience().Unreachable(ctx, s.Target, err)
	}
	f := &Force{session: s}
	statuses, err = f.withoutEmpty(ctx, statuses)
	if err != nil {
		return f, s.Refusal(err)
	}
	if err := f.choose(statuses, Notice(ctx, s, keys) > 0, lax); err != nil {
		return f, err
	}
	for _, status := range f.Held {
		tokens := []string{status.Token}
		if status.HolderCount > 0 {
			if tokens, err = Sharers(ctx, s, status.Key); err != nil {
				return f, s.Refusal(err)
			}
		}
		f.tokens = append(f.tokens, tokens)
	}
	return f, nil
}

// withoutEmpty frees those keys that are shared, and that nobody holds, and returns the others.
func (f *Force) withoutEmpty(ctx context.Context, all []redislock.Status) (rest []redislock.Status, err error) {
	for _, status := range all {
		freed, unheld := false, status.Token == "" && status.TTL != 0 && status.HolderCount == 0
		if unheld && keyname.HouseOf(status.Key) != "" && !f.session.IsQuorum() {
			if freed, err = Empty(ctx, f.session, status.Key); err != nil {
				return nil, err
			}
		}
		if !freed {
			rest = append(rest, status)
			continue
		}
		f.Done = append(f.Done, fmt.Sprintf("released %s, which nobody held", words.Escape(status.Key)))
	}
	return rest, nil
}

// choose puts those keys into Held that are held, or whose holder may put them back while the guard is closed. It returns an
// error if one of them does not look like a lock.
func (f *Force) choose(statuses []redislock.Status, closed, lax bool) error {
	for _, status := range statuses {
		switch {
		case status.TTL == 0 && !closed:
			f.Done = append(f.Done, words.Escape(status.Key)+" is free")
			continue
		case status.TTL == 0, status.HolderCount > 0: // no other string is like that of a shared key
		case status.Token == "":
			return fmt.Errorf("%w: %q holds something that is not a lock; look at it with redis-cli", ErrNothingReleased, status.Key)
		case !lax && status.TTL < 0:
			return fmt.Errorf("%w: %q has no expiry, so it does not look like a lock; add --any to delete it nevertheless",
				ErrNothingReleased, status.Key)
		case !lax && !keyname.BeginsLikeToken(status.Token):
			return fmt.Errorf("%w: %q does not begin with a random token, so it does not look like a lock; "+
				"add --any to delete it nevertheless", ErrNothingReleased, status.Key)
		}
		f.Held = append(f.Held, status)
	}
	return nil
}

// Facts says who holds each key.
func (f *Force) Facts() (lines []string) {
	for _, status := range f.Held {
		lines = append(lines, fmt.Sprintf("%s is %s", words.Escape(status.Key), holder(status)))
	}
	return lines
}

// Release releases one of Held, and says so. Its error can be printed.
func (f *Force) Release(ctx context.Context, i int) (done string, err error) {
	status, released := f.Held[i], 0
	key := words.Escape(status.Key)
	for _, token := range f.tokens[i] {
		switch taken, err := ReleaseByForce(ctx, f.session, status.Key, token, f.session.Complain); {
		case errors.Is(err, redislock.ErrLockNotHeld): // its hold has ended meanwhile
		case err != nil:
			return "", ExplainRelease(f.session, err)
		case taken > 0: // from all of them
			return fmt.Sprintf("took %s until the guard opens in %s; it was %s", key, words.Duration(taken), holder(status)), nil
		default:
			released++
		}
	}
	switch {
	case released == 0:
		return "", fmt.Errorf("not released: %q has a new holder, or was released meanwhile", status.Key)
	case status.HolderCount > 0 && released == 1:
		return fmt.Sprintf("released %s from 1 holder, %s", key, holder(status)), nil
	case status.HolderCount > 0:
		return fmt.Sprintf("released %s from %d holders, %s", key, released, holder(status)), nil
	}
	return fmt.Sprintf("released %s, %s", key, holder(status)), nil
}

func holder(status redislock.Status) string {
	if status.TTL == 0 { // while the guard is closed
		return "free, but Redis may have forgotten its holder, who would put it back"
	}
	return "held by " + show.Holder(status)
}

// ExplainRelease makes an error of a release ready to be printed, unless it matches redislock.ErrLockNotHeld.
func ExplainRelease(s *connect.Session, err error) error {
	if err == nil || errors.Is(err, redislock.ErrLockNotHeld) {
		return err
	}
	if _, stays := errors.AsType[*UnreleasedError](err); stays {
		return cli.Unavailablef("%w", err)
	}
	return s.Refusal(err)
}

// withoutRepeats returns each key once: a lock cannot be released twice.
func withoutRepeats(keys []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) (again bool) {
		again, seen[key] = seen[key], true
		return again
	})
}
