package faultproxy

import (
	"context"
	"sync"
)

// A queue is an unbounded FIFO between goroutines. Unbounded, because the goroutine that reads replies must never wait for
// the one that writes them, which itself waits for replies.
type queue[T any] struct {
	ready chan struct{} // holds a token if items may not be empty

	mu    sync.Mutex // protects items
	items []T
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{ready: make(chan struct{}, 1)}
}

func (q *queue[T]) push(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// pop returns the oldest item, and waits for one if there is none. It returns false as soon as ctx is done, whatever is
// left, and also once closed is closed and the queue empty; what is pushed after that stays. A queue has one popper.
func (q *queue[T]) pop(ctx context.Context, closed <-chan struct{}) (item T, ok bool) {
	for ctx.Err() == nil {
		if item, ok := q.tryPop(); ok {
			return item, true
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
		case <-closed:
			return q.tryPop() // a last push may have come just before
		}
	}
	return item, false
}

// tryPop returns the oldest item, and false if there is none.
func (q *queue[T]) tryPop() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return item, false
	}
	item = q.items[0]
	q.items = q.items[1:]
	return item, true
}

// peek returns the oldest item and leaves it there, and false if there is none.
func (q *queue[T]) peek() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return item, false
	}
	return q.items[0], true
}
