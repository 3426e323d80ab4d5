package spec

import (
	"reflect"
	"unsafe"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/several"
)

// Several returns what a lock at several places is below its public type. A spec uses it for what no caller can know or do.
func Several(lock *redislock.Lock) *several.Lock { return inside[*several.Lock](lock, "several") }

// FillCleanups leaves a Client on one Redis no room for another cleanup, until the returned function is called.
func FillCleanups(locks *redislock.Client) (free func()) {
	return TakeCleanups(locks, claim.MaxFreeings)
}

// TakeCleanups takes the room for n cleanups of a Client on one Redis, until the returned function is called.
func TakeCleanups(locks *redislock.Client, n int64) (free func()) {
	running := inside[*place.Place](locks, "one").Ledger.Running
	running.Add(n)
	return func() { running.Add(-n) }
}

// inside returns a field of a struct that only the struct's own package may name.
func inside[T any](of any, field string) T {
	value := reflect.ValueOf(of).Elem().FieldByName(field)
	if value.Type() != reflect.TypeFor[T]() {
		panic(field + " is a " + value.Type().String())
	}
	return *(*T)(unsafe.Pointer(value.UnsafeAddr()))
}
