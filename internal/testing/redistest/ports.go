package redistest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// A cluster node listens for its peers busOffset above its port.
const busOffset = 10000

// Ports come from [firstPort, lastPort), so none is the bus port of another. Neither they nor their bus ports are 6379, or
// in the range (32768 and up on Linux, 49152 and up on macOS) where the kernel picks the local ports of outgoing
// connections: one of those could take the port of a server that is down until its Restart.
const (
	firstPort = 11000
	lastPort  = firstPort + busOffset
)

// takePort returns a port that is free now, as its bus port is, and what holds it for the server until that is closed, also
// while the server is down. A process that is not of this package can still bind the port first: the caller retries when the
// server finds it in use.
func takePort() (port int, reservation io.Closer, err error) {
	for range 1000 {
		port = firstPort + rand.IntN(lastPort-firstPort)
		reservation, err = reserve(port)
		if err != nil {
			continue
		}
		if free(port) && free(port+busOffset) {
			return port, reservation, nil
		}
		if err := reservation.Close(); err != nil {
			return 0, nil, err
		}
	}
	return 0, nil, errors.New("redistest: found no free port")
}

// reserve holds a port against the other callers of takePort, in this process and in others. It binds the UDP port of the
// same number, which redis-server does not use; it ends with this process at the latest.
func reserve(port int) (io.Closer, error) {
	return net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
