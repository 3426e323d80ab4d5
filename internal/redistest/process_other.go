//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// unsupported is the reason why this platform cannot run Redis.
var unsupported = errors.New("redistest: redis-server runs on Unix systems only")

// process keeps the package, and the tests that import it, compiling here:
// every start has failed on unsupported before one can exist.
type process struct{ exited chan struct{} }

func spawn(string, *os.File, string, ...string) (*process, error) { return nil, unsupported }

func (*process) pid() int         { return 0 }
func (*process) running() bool    { return false }
func (*process) pause() error     { return unsupported }
func (*process) resume() error    { return unsupported }
func (*process) kill() error      { return nil }
func (*process) terminate() error { return nil }
