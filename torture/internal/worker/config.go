// Package worker is the part of a torture run that uses the library: a process that obtains, keeps, loses and releases
// locks in every way that the public API has, and writes down what it was promised.
package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Endpoint is where the locks are.
type Endpoint struct {
	Topology string   // one, memory, sentinel, cluster or quorum, in each case without "+guard"
	Addrs    []string // of the server, the sentinels, the nodes, or the independent servers
	Master   string   // the name of the master at the sentinels
	Guard    Guard
}

// need returns how many servers mint a fencing token together; 0 if each does so alone.
func (e Endpoint) need() int64 {
	if e.Topology != "quorum" {
		return 0
	}
	return int64(len(e.Addrs)/2 + 1)
}

// Guard is what WithGuard is given. The zero Guard is none.
type Guard struct{ MaxTTL, Deposed time.Duration }

// Grace returns for how long a guard stays closed; 0 without one.
func (g Guard) Grace() time.Duration { return g.MaxTTL + g.Deposed }

// clamp returns ttl, or the longest one that the guard allows.
func (g Guard) clamp(ttl time.Duration) time.Duration {
	if g.MaxTTL > 0 {
		return min(ttl, g.MaxTTL)
	}
	return ttl
}

// Config is the configuration of a worker.
type Config struct {
	Worker     string // "‹slot›.‹how many before›"
	Seed       uint64
	Endpoint   Endpoint
	Client     string            // one of Clients
	Via        map[string]string // for some addresses, the address to connect to instead
	Store      string            // the socket of the guarded store
	History    string            // the file to write
	Goroutines int
	Crowd      int    // how many further goroutines only play bursts: so many calls at once share round trips and scripts
	Until      int64  // from when on a goroutine begins nothing new
	Groups     int    // of keys; the keys of a lock are of one group
	Keys       int    // of a group
	Hot        int    // how many keys of a group are contended
	Scene      string // the one to play most of the time; "" plays all as often as their weights say
}

// Read reads the configuration from a file.
func Read(name string) (*Config, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c := new(Config)
	return c, json.Unmarshal(text, c)
}

// Write writes the configuration to a file.
func (c *Config) Write(name string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// key returns the key with that number in a group. On a Cluster, the keys of a group are in one slot.
func key(group, number int) string { return fmt.Sprintf("{%c}:%d", 'a'+group, number) }

// FenceSuffix ends the names of the counters of fencing tokens. They have no expiry.
const FenceSuffix = ":fence"
