package main

import (
	"context"
	"errors"
	"fmt"
)

// locker is a contestant of the cells without contention.
type locker struct {
	name     string
	settings string
	sends    []string // the commands that it sends; scripts run others as well
	// pair obtains a lock on all of keys and releases it. A locker of single keys locks one after another.
	pair  func(ctx context.Context, keys []string) error
	close func() error
}

// errTaken says that another holder has a key that nobody else should want.
var errTaken = errors.New("the key is taken")

// scripts are the commands of lockers that send only scripts.
var scripts = []string{"evalsha", "eval"}

// openLockers opens every locker on the server at addr, this library first.
func openLockers(addr string) ([]*locker, error) {
	on := func(open func(addr string) (*locker, error)) openLocker {
		return func(addrs []string) (*locker, error) { return open(addrs[0]) }
	}
	return openAll([]string{addr},
		on(openRedislock), on(openRedislockOverRueidis), on(openBSM), on(openBSMBeside), openRedsync, openRueidislock,
		on(openRawGoRedis), on(openRawRueidis), on(openBareScripts))
}

// openLocker opens a locker on the servers at addrs.
type openLocker func(addrs []string) (*locker, error)

// openAll opens lockers on the servers at addrs.
func openAll(addrs []string, all ...openLocker) (opened []*locker, err error) {
	for _, open := range all {
		l, err := open(addrs)
		if err != nil {
			return nil, errors.Join(err, closeLockers(opened))
		}
		opened = append(opened, l)
	}
	return opened, nil
}

// closeLockers closes the connections of all lockers.
func closeLockers(lockers []*locker) error {
	var errs []error
	for _, l := range lockers {
		if err := l.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", l.name, err))
		}
	}
	return errors.Join(errs...)
}
