// Package redislockhttp shows in a browser who holds locks, and who waits for whom. It fits into the mux of an admin page:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	mux.Handle("/admin/locks/", http.StripPrefix("/admin/locks", redislockhttp.Handler(client)))
//
// The page shows circles of callers that wait for each other, the trees of who waits for whom, and a table of all locks. It
// renews itself every two seconds, can be filtered by a part of a key or of metadata, and needs no other file.
//
// # What it does not do
//
// It changes nothing, in Redis or elsewhere, and answers nothing but GET and HEAD. It shows no more of a token than its
// first characters, so nobody can release a lock with it. But it shows keys and metadata to everyone whom the mux lets in.
// So add it where only operators get. Scripts and frames of other origins get 403.
//
// # What it costs
//
// Nothing while nobody looks. All who look see the same look at Redis, for a second at least. A look goes through all keys
// of the database with SCAN, 500 at a time, as redislock ls does. The next one comes when nine times as long has passed as
// that took, so looking takes at most a tenth of the time. It remembers 10,000 locks and 50,000 waiters.
package redislockhttp

import (
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/page"
	"github.com/redislock/redislock/internal/survey"
)

// Handler returns a handler that shows the locks of the Redis of a client: one server, a Sentinel, a Cluster or a Ring. It
// panics if client is nil. The handler needs no closing, never closes the client, and is safe for concurrent use. If Redis
// does not answer, it shows the error, and what was seen last.
func Handler(client redis.UniversalClient) http.Handler {
	return page.New(page.Options{Redis: survey.Of(redislock.New(client), client), Where: where(client)})
}

// QuorumHandler is Handler for the servers that [redislock.NewQuorum] was given. It shows what a majority of them holds, and
// panics as NewQuorum does.
func QuorumHandler(clients []redis.UniversalClient) http.Handler {
	servers := make([]redislock.RedisClient, len(clients))
	names := make([]string, len(clients))
	for i, client := range clients {
		servers[i], names[i] = client, where(client)
	}
	locks := redislock.NewQuorum(servers)
	return page.New(page.Options{Redis: survey.OfQuorum(locks, clients), Where: strings.Join(names, ", ")})
}

// where returns the address of a client, if it has one.
func where(client redis.UniversalClient) string {
	switch client := client.(type) {
	case interface{ Options() *redis.Options }:
		return client.Options().Addr
	case interface{ Options() *redis.ClusterOptions }:
		return strings.Join(client.Options().Addrs, ", ")
	}
	return ""
}
