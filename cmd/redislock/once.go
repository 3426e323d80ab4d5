package main

import "github.com/redis/go-redis/v9"

// once is a command that is not repeated: who waits at a terminal wants to know what is wrong, and now.
type once struct{ *redis.Cmd }

// NoRetry is what go-redis asks.
func (once) NoRetry() bool { return true }
