package main

import (
	"context"
	"errors"
	"fmt"
)

// locker is a contestant of the cells in which nobody contends.
type locker struct {
	name     string
	settings string
	sends    []string // the commands that it sends; scripts run more of them
	// pair obtains a lock on all of keys and releases it. A locker of single keys locks one after another.
	pair  func(ctx context.Context, keys []string) error
	close func() error
}

// errTaken means that a key which nobody else should want is another's.
var errTaken = errors.New("the key is taken")

// scripts are the commands of those who send scripts alone.
var scripts = []string{"evalsha", "eval"}

// openLockers opens every locker on the server at addr, this library first.
func openLockers(addr string) (opened []*locker, err error) {
	for _, connect := range []func(string) (*locker, error){
		openRedislock, openBSM, openRedsync, openRueidislock, openRawGoRedis, openRawRueidis, openBareScripts,
	} {
		l, err := connect(addr)
		if err != nil {
			return nil, errors.Join(err, closeLockers(opened))
		}
		opened = append(opened, l)
	}
	return opened, nil
}

// closeLockers closes the connections of all.
func closeLockers(lockers []*locker) error {
	var errs []error
	for _, l := range lockers {
		if err := l.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", l.name, err))
		}
	}
	return errors.Join(errs...)
}
