package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// serverStats are the counters of a server, or the difference of two readings of them.
type serverStats struct {
	calls   map[string]float64 // by the name of the command, in lower case; with the calls of scripts
	scripts float64            // for how long scripts have run, in µs
	cpu     float64            // how long the server has run on a processor, in seconds
	reads   float64            // how often the server has read from a connection
}

// stats reads the counters of the server.
func (t *target) stats(ctx context.Context) (serverStats, error) {
	info, err := t.client.Info(ctx, "all").Result()
	if err != nil {
		return serverStats{}, fmt.Errorf("counters of the server: %w", err)
	}
	return parseStats(info)
}

// parseStats reads the counters in a reply of INFO. Fields that the server does not have count as 0.
func parseStats(info string) (serverStats, error) {
	s := serverStats{calls: map[string]float64{}}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		command, isCommand := strings.CutPrefix(name, "cmdstat_")
		if isCommand {
			calls, times, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			value = calls
			if slices.Contains(scripts, command) {
				micros, _, _ := strings.Cut(strings.TrimPrefix(times, "usec="), ",")
				took, err := strconv.ParseFloat(micros, 64)
				if err != nil {
					return serverStats{}, fmt.Errorf("INFO: %s: %w", name, err)
				}
				s.scripts += took
			}
		}
		var into *float64
		switch {
		case name == "used_cpu_user" || name == "used_cpu_sys":
			into = &s.cpu
		case name == "total_reads_processed":
			into = &s.reads
		case !isCommand:
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return serverStats{}, fmt.Errorf("INFO: %s: %w", name, err)
		}
		if isCommand {
			s.calls[command] = number
			continue
		}
		*into += number
	}
	return s, nil
}

// since returns the difference to an earlier reading.
func (s serverStats) since(earlier serverStats) serverStats {
	added := serverStats{
		calls: map[string]float64{}, scripts: s.scripts - earlier.scripts,
		cpu: s.cpu - earlier.cpu, reads: s.reads - earlier.reads,
	}
	for command, calls := range s.calls {
		added.calls[command] = calls - earlier.calls[command]
	}
	return added
}

// add adds the counters of another server.
func (s *serverStats) add(other serverStats) {
	s.scripts += other.scripts
	s.cpu += other.cpu
	s.reads += other.reads
	for command, calls := range other.calls {
		s.calls[command] += calls
	}
}

// sent returns how many calls of the named commands there were.
func (s serverStats) sent(commands []string) float64 {
	total := 0.0
	for _, command := range commands {
		total += s.calls[command]
	}
	return total
}

// executed returns how many calls clients and scripts made, except those that read the counters.
func (s serverStats) executed() float64 {
	total := 0.0
	for command, calls := range s.calls {
		if command != "info" {
			total += calls
		}
	}
	return total
}

// perLock adds to f the server's figures for each of so many locks, if clients send only the named commands.
func (s serverStats) perLock(f figures, commands []string, locks float64) {
	f[sent.head] = s.sent(commands) / locks
	f[executed.head] = s.executed() / locks
	f[serverCPU.head] = s.cpu * 1e6 / locks
	f[scriptTime.head] = s.scripts / locks
	f[freed.head] = s.calls["del"] / locks
}
