package several

import (
	"runtime"

	"github.com/redislock/redislock/internal/transport"
)

// outcomes are what calls to places, each in a goroutine of its own, have returned.
type outcomes[T any] chan outcome[T]

type outcome[T any] struct {
	i      int // the number of the place
	result T
	hook   *panicked // nil if the call has returned
}

// run makes a call in this goroutine, and sends its outcome. If there is no room for the outcome, its receiver has ended.
func (o outcomes[T]) run(i int, call func() T) {
	var result T
	catch(func() { result = call() }, func(hook *panicked) {
		select {
		case o <- outcome[T]{i, result, hook}:
		default:
		}
	})
}

// sideBySide calls do for each of the places with these numbers, each in a goroutine of its own, and note with each result,
// in the goroutine of the caller. It returns when note says that it knows enough, or when all have returned. The goroutines
// that are left end with their do. If a do panics before that, sideBySide panics with the same value.
func sideBySide[T any](numbers []int, do func(i int) T, note func(i int, result T) (enough bool)) {
	all := make(outcomes[T], len(numbers))
	for _, i := range numbers {
		transport.Go(func() { all.run(i, func() T { return do(i) }) })
	}
	for range numbers {
		o := <-all
		o.hook.again()
		if note(o.i, o.result) {
			return
		}
	}
}

// panicked is what a hook has panicked with, in another goroutine than that of the caller.
type panicked struct {
	value any // nil for a runtime.Goexit
}

// catch calls do, and then ended: with what do has panicked with, or with nil if do has returned. It stops the panic.
func catch(do func(), ended func(*panicked)) {
	hook := &panicked{}
	defer func() {
		if hook != nil {
			hook.value = recover()
		}
		ended(hook)
	}()
	do()
	hook = nil
}

// again panics with the same value, or calls runtime.Goexit. For nil it does nothing.
func (p *panicked) again() {
	switch {
	case p == nil:
	case p.value == nil:
		runtime.Goexit()
	default:
		panic(p.value)
	}
}
