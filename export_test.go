package redislock

import "github.com/redis/go-redis/v9"

// Instead makes Clients use what f returns in the place of a client of one server. It is for use before the first New.
func Instead(f func(*redis.Client) RedisClient) {
	instead = func(client RedisClient) RedisClient {
		if one, is := client.(*redis.Client); is && one != nil {
			return f(one)
		}
		return client
	}
}
