package redistest

import (
	"errors"
	"sync"
)

// startAll starts n servers side by side, all of them or none.
func startAll(n int, start func() (*Server, error)) ([]*Server, error) {
	servers, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = start() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, closeAll(servers))
	}
	return servers, nil
}

// closeAll closes the servers; nil ones are those that did not start.
func closeAll(servers []*Server) error {
	var errs []error
	for _, s := range servers {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

func addrs(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	return addrs
}
