package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// A cluster node listens for its peers busOffset above its port.
const busOffset = 10000

// Ports come from [firstPort, lastPort). Neither they nor their bus ports are
// 6379, or in the range (32768 and up on Linux, 49152 and up on macOS) where
// the kernel picks the local ports of outgoing connections: one of those could
// take the port of a server that is down until its Restart.
const (
	firstPort = 11000
	lastPort  = 22000
)

// ports remembers which ports this process has given to servers, so that a
// server that is down does not lose its port to the next one.
var ports = struct {
	mu    sync.Mutex // protects taken
	taken map[int]bool
}{taken: make(map[int]bool)}

// takePort returns a port that is free now, as its bus port is. Another process
// can still bind it first: the caller retries when the server finds it in use.
func takePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if !ports.taken[port] && free(port) && free(port+busOffset) {
			ports.taken[port] = true
			return port, nil
		}
	}
	return 0, errors.New("redistest: found no free port")
}

func givePort(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	delete(ports.taken, port)
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
