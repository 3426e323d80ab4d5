// Package goredis lets package transport send scripts through go-redis. It knows nothing about locks.
package goredis
