// Package redistest starts real Redis processes for tests: a single server, a
// Redis Cluster, or a master with a replica and sentinels.
//
// Every process is a redis-server from PATH on 127.0.0.1, on a port of its own
// and in a temporary directory of its own. The package signals only processes
// that it started, and each of them ends with the process that started it,
// however that one ends; see [Server].
//
// The functions return errors and know nothing of package testing, so that a
// benchmark or a command can use them too.
package redistest

import (
	"fmt"
	"os/exec"

	"github.com/redislock/redislock/internal/testing/leash"
)

// executable is the one binary the package runs; it is the sentinel as well.
const executable = "redis-server"

// Available returns nil if Start can find a redis-server on PATH, and otherwise an error that says how to get one.
func Available() error {
	_, err := lookPath()
	return err
}

func lookPath() (string, error) {
	if leash.ErrUnsupported != nil {
		return "", fmt.Errorf("redistest: %w", leash.ErrUnsupported)
	}
	bin, err := exec.LookPath(executable)
	if err != nil {
		return "", fmt.Errorf("redistest: %w; install it with "+
			"\"apt-get install redis-server\" or \"brew install redis\"", err)
	}
	return bin, nil
}
