package redislock

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// An obtain with a custom token compares its keys with those of every cleanup for that token. Pair by pair, as many
// keys as here took 5 s, during which no other cleanup of the Client could begin or end.
func TestSupersedeManyKeys(t *testing.T) {
	names := func(prefix string) []string {
		names := make([]string, 50_000)
		for i := range names {
			names[i] = prefix + strconv.Itoa(i)
		}
		return names
	}
	background, theirs := context.Background(), names("a")
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no server")
	}})
	defer client.Close()
	locks := New(client)
	release := newRelease(background, "me", nil, nil)
	end := make(chan struct{})
	locks.inBackground(&cleanup{release: release, keys: theirs}, func() error {
		<-end
		return nil
	})
	defer func() {
		close(end)
		_ = locks.Close()
	}()

	began := time.Now()
	if _, err := locks.supersede(background, "me", names("b"), 0); err != nil || release.IsDropped() {
		t.Errorf("other keys: %v, dropped: %v", err, release.IsDropped())
	}
	if _, err := locks.supersede(background, "you", theirs, 0); err != nil || release.IsDropped() {
		t.Errorf("another token: %v, dropped: %v", err, release.IsDropped())
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}

	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := locks.supersede(ended, "me", theirs[:1], 0); !errors.Is(err, context.Canceled) || release.IsDropped() {
		t.Errorf("ctx has ended: %v, dropped: %v", err, release.IsDropped())
	}
	if _, err := locks.supersede(background, "me", append(names("b"), theirs[49_999]), 0); err != nil || !release.IsDropped() {
		t.Errorf("a key in common: %v, dropped: %v", err, release.IsDropped())
	}
}
