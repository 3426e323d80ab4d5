package locking

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/marker"
	"github.com/redislock/redislock/internal/keyname"
)

// nobody is a token that holds nothing. With it, Attach asks only whether the guard is closed, and closes it if Redis may
// have forgotten.
const nobody = "nobody"

// takenMetadata is that of a key which ReleaseByForce has taken.
const takenMetadata = "released by force while the guard is closed, and taken until it opens"

// ReleaseByForce releases a key from the token that holds it; "" if nobody seems to. While the guard is closed, it takes the
// key until the guard opens, and returns how long that is: the next renewal of the holder would put a deleted key back.
func ReleaseByForce(
	ctx context.Context, s *connect.Session, key, token string, tell func(error),
) (taken time.Duration, err error) {
	var random [keyname.TokenBytes]byte
	_, _ = rand.Read(random[:])
	value := base64.RawURLEncoding.EncodeToString(random[:]) + " " + takenMetadata
	taken, err = release(ctx, s, []string{key}, token, value, tell)
	if token == "" && errors.Is(err, redislock.ErrLockNotHeld) { // the guard is open by now
		return 0, nil
	}
	return taken, err
}

// Notice returns for how much longer the guard is closed. It closes the guard first if Redis may have forgotten locks and
// nobody has noticed yet.
func Notice(ctx context.Context, s *connect.Session, keys []string) time.Duration {
	if !s.IsGuarded() {
		return 0
	}
	if _, err := s.Locks.Attach(ctx, keys, nobody); s.IsClosed(err) {
		return s.Closed(ctx)
	}
	return 0
}

// releaseClosed releases keys at each server by itself, because the library attaches to nothing while the guard is closed.
// Where the guard is closed, it puts value into the keys, unless that is "", and returns how long they keep it.
func releaseClosed(
	ctx context.Context, s *connect.Session, keys []string, token, value string,
) (kept time.Duration, err error) {
	servers, good := connect.Servers(s.Client), 0
	for _, server := range servers {
		left, failed := releaseAt(ctx, s, server, keys, token, value)
		kept, err = max(kept, left), cmp.Or(err, failed)
		if failed == nil {
			good++
		}
	}
	if q, several := s.Client.(*connect.Quorum); several && good > len(q.All)/2 {
		return kept, nil
	}
	return kept, err
}

func releaseAt(
	ctx context.Context, s *connect.Session, server *redis.Client, keys []string, token, value string,
) (kept time.Duration, err error) {
	locks := s.At(server)
	defer func() { _ = locks.Close() }()
	for { // the guard may open meanwhile
		lock, err := locks.Attach(ctx, keys, cmp.Or(token, nobody))
		switch {
		case err == nil:
			return 0, lock.Release(ctx)
		case token == "" && errors.Is(err, redislock.ErrLockNotHeld): // open, and nobody is to be released
			return 0, nil
		case !s.IsClosed(err):
			return 0, err
		}
		switch left, others, err := marker.Replace(ctx, server, keys, token, value); {
		case err != nil:
			return 0, err
		case len(others) > 0:
			return 0, fmt.Errorf("%w: another holds %s", redislock.ErrLockNotHeld, Names(others))
		case left > 0:
			return left, nil
		}
	}
}
