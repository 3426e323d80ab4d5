module github.com/redislock/redislock/torture

go 1.26.0

require (
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/redislock/redislock v0.0.0
	github.com/redislock/redislock/redislockrueidis v0.0.0
	github.com/redislock/redislock/redislockvalkey v0.0.0
	github.com/valkey-io/valkey-go v1.0.79
	golang.org/x/sys v0.48.0
	golang.org/x/term v0.44.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)
