package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/redistest"
)

// target is the redis-server that everything runs on.
type target struct {
	addr   string
	client *redis.Client     // asks for its figures, and does nothing else
	own    *redistest.Server // nil if the server is the user's
}

// openTarget connects to the server at addr, or starts one if addr is empty.
func openTarget(addr string) (_ *target, err error) {
	t := &target{addr: addr}
	if addr == "" {
		if t.own, err = redistest.Start(); err != nil {
			return nil, err
		}
		t.addr = t.own.Addr()
	}
	t.client = redis.NewClient(&redis.Options{Addr: t.addr})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := t.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("no Redis answers: %w", err), t.close())
	}
	return t, nil
}

// close ends the connection, and the server if it is ours.
func (t *target) close() error {
	err := t.client.Close()
	if t.own != nil {
		err = errors.Join(err, t.own.Close())
	}
	return err
}
