package several

import (
	"runtime"

	"github.com/redislock/redislock/internal/transport"
)

// sideBySide calls do for each of the places with these numbers, each in a goroutine of its own, and note with each
// result, in the goroutine of the caller. It returns when note says that it knows enough, or when all have returned.
// The goroutines that are left end with their do. If a do panics before that, sideBySide panics with the same value.
func sideBySide[T any](numbers []int, do func(i int) T, note func(i int, result T) (enough bool)) {
	type outcome struct {
		i        int
		result   T
		panicked *panicked // nil if do has returned
	}
	outcomes := make(chan outcome, len(numbers))
	for _, i := range numbers {
		transport.Go(func() {
			o := outcome{i: i, panicked: &panicked{}}
			defer func() {
				if o.panicked != nil {
					o.panicked.value = recover()
				}
				outcomes <- o
			}()
			o.result = do(i)
			o.panicked = nil
		})
	}
	for range numbers {
		o := <-outcomes
		o.panicked.again()
		if note(o.i, o.result) {
			return
		}
	}
}

// panicked is what a goroutine has panicked with.
type panicked struct {
	value any // nil for a runtime.Goexit
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
