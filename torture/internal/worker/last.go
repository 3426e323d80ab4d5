package worker

import (
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// Last locks and releases every key after the workers have ended, and writes whether that was possible within a ttl, and
// the grace of a guard.
func Last(file string) error {
	config, err := Read(file)
	if err != nil {
		return err
	}
	log, err := history.Create(config.History, config.Worker)
	if err != nil {
		return err
	}
	defer log.Close()
	b, err := config.connectSoon()
	if err != nil {
		return err
	}
	defer b.close()
	client := b.newClient()
	defer client.Close()
	for group := range config.Groups {
		var keys []string
		for i := range config.Keys {
			keys = append(keys, key(group, i))
		}
		const patience = 5 * time.Second
		guard := config.Endpoint.Guard
		ttl := guard.clamp(patience)
		ctx, cancel := context.WithTimeout(context.Background(), patience+guard.Grace())
		// On a busy machine, a quorum may not answer a round in time, and a sentinel may name the master of some time ago.
		const pause = 200 * time.Millisecond
		again := &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)}
		lock, err := client.ObtainMulti(ctx, keys, ttl, again)
		for err != nil && config.Endpoint.Master != "" && !errors.Is(err, redislock.ErrNotObtained) && ctx.Err() == nil {
			time.Sleep(pause)
			lock, err = client.ObtainMulti(ctx, keys, ttl, again)
		}
		outcome, code := outcomeOf(err, "granted")
		e := history.Event{
			Kind: history.Last, At: clock.Now(), Name: "ObtainMulti", Keys: keys, Outcome: outcome, Op: config.Worker,
		}
		if code != "" {
			e.Options = []string{"error:" + code}
		}
		log.Write(e)
		_ = lock.Release(ctx)
		cancel()
	}
	return nil
}
