package redislock

import "github.com/redislock/redislock/adapter"

// Adapt returns a RedisClient for [New] and [NewQuorum] that works through another client than go-redis. There are adapters
// for rueidis and valkey-go, in the modules redislockrueidis and redislockvalkey; package adapter says how to write one. All
// that a Client does works through it, as far as its client can do that; hooks are a matter of go-redis. The result is only
// for the library: its methods panic.
//
// Clients whose adapters are equal share subscriptions, renewals and pipelines, as those with one client of go-redis do.
func Adapt(c adapter.Conn) RedisClient { return adapted{conn: c} }

// adapted is what Adapt returns. newPlace takes the adapter out.
type adapted struct {
	RedisClient // nil

	conn adapter.Conn
}
