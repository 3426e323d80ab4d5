package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// keptSet is many locks of one keeper. It allocates its own memory before it obtains the locks.
type keptSet struct {
	keeper  *keeper
	names   []string
	held    []context.Context
	release []func() error
}

func newKeptSet(k *keeper, prefix string, n int) *keptSet {
	s := &keptSet{
		keeper: k, names: make([]string, n), held: make([]context.Context, n), release: make([]func() error, n),
	}
	for i := range s.names {
		s.names[i] = fmt.Sprintf("%s:%d", prefix, i)
	}
	return s
}

// obtain obtains all locks and keeps them alive.
func (s *keptSet) obtain() error {
	return s.each(func(i int) (err error) {
		s.held[i], s.release[i], err = s.keeper.keep(context.Background(), s.names[i])
		return err
	})
}

// releaseAll releases all locks. A lost lock is no error, because lost has counted it.
func (s *keptSet) releaseAll() error {
	return s.each(func(i int) error {
		held := s.held[i].Err() == nil
		err := s.release[i]()
		if held {
			return err
		}
		return nil
	})
}

// keptGoroutines is how many goroutines obtain and release the locks.
const keptGoroutines = 64

// each calls f for each lock, in some goroutines, and returns the errors.
func (s *keptSet) each(f func(i int) error) error {
	errs := make([]error, keptGoroutines)
	var wait sync.WaitGroup
	for g := range keptGoroutines {
		wait.Go(func() {
			for i := g; i < len(s.names); i += keptGoroutines {
				if err := f(i); err != nil {
					errs[g] = err
					return
				}
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// lost returns how many of the locks are no longer held.
func (s *keptSet) lost(ctx context.Context, t *target) (float64, error) {
	var keys []string
	gone := 0.0
	for i, name := range s.names {
		if s.held[i].Err() != nil {
			gone++
			continue
		}
		keys = append(keys, s.keeper.redisKey(name))
	}
	if len(keys) == 0 {
		return gone, nil
	}
	present, err := t.client.Exists(ctx, keys...).Result()
	return gone + float64(len(keys)) - float64(present), err
}
