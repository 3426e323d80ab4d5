package main

import (
	"context"
	"net"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// inMemory returns a client of an empty Redis inside this program, and what ends both.
func inMemory() (client *redis.Client, end func()) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // its keys expire as time passes
	client = redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:0", // nobody dials it; without it go-redis looks a name up, which a bubble of synctest cannot
		Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
	})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}
