// Package history is a record of what the library promised its callers, and when, and of what the servers held. The torture
// run and the models of the library write such records, and package check judges them. The package knows nothing about the
// library or Redis.
package history

import (
	"slices"
	"time"
)

// Kind says what an event is about.
type Kind string

// The events of workers: of those who call the library. A worker writes those that it can see.
const (
	// Grant: the call Op of the function Name was granted Keys with Token, and Fence of FenceKey, if that is not empty. From
	// At until Until the worker believes that it holds the keys. The call began at Start. If it was refused, the first time was
	// at Refused. Queue says that it waited in line, Custom that the caller chose the token. Need is how many servers of a
	// quorum mint the token together; 0 and 1 stand for one server. Holders says how many holders each of Keys may have, 0 for
	// no limit; without it, all are exclusive. Under names the holds that the caller had while it waited, as far as the library
	// could know.
	Grant Kind = "grant"

	// Wait: the call Op with Queue was refused for the first time at Refused, and waits in line. Its fields are those of Grant.
	// It is all that shows what a worker waited for that was killed.
	Wait Kind = "wait"

	// Claim: from At until Until the worker believes that it holds Op, whatever it believed before. An Until of 0 ends the
	// hold: right before a release, or a Refresh to a shorter ttl. Until was read between At and End.
	Claim Kind = "claim"

	// Alive: the context of the kept hold Op had not ended at At. Bound is the latest end of its validity, as the worker
	// read it right after, by End; 0 if it could not be read.
	Alive Kind = "alive"

	// Done: a call of the function Name has returned at At, with Outcome, for the call or the hold Op. It began at Start,
	// its context ended at Limit (0: it did not), and Options names the options that it used. Target is an unexpected error,
	// or one of the network. For an obtain with Queue that failed, Queue, Keys, Holders, Under, Refused and TTL are set as for
	// Grant. Lost says that the call reported a loss of the hold. Left is the ttl that TTL reported. The function "Leave" has
	// closed the Client that Op had for itself, and is about to close its connections; it began with the obtain.
	Done Kind = "done"

	// Beat: the worker process runs. It writes one every 50 ms.
	Beat Kind = "beat"

	// Late: the derived context of the kept hold Op ended Left after Until.
	Late Kind = "late"
)

// The events of the program or test that starts the workers.
const (
	// Fault: the fault Name lasted from At until End, at the worker or server Target ("" for all). Lossy says that Redis may
	// have forgotten what it acknowledged, or ended leases early. Without Lossy, that is true of Keys, of the hold Op, and, if
	// Fresh is set, of what was granted while the fault lasted. With Grace, the servers have a guard: whatever they forget, no
	// second hold may come of it, and for up to Grace after the fault nothing is granted. Held is what a server had when it
	// had gone back to earlier data. From Start on, no other server grants locks in its place.
	Fault Kind = "fault"

	// Write: at At, Op asked the fenced store to write FenceKey with Fence. Outcome is "taken" or "refused".
	Write Kind = "write"

	// Sample: at At, Redis held Held. The request was sent at Start. With Need, Held names each key once for each server that
	// has it, once more for each further holder there, and a lock is held if so many of them have all of its keys. Exact says
	// that the ttls are exact. If it is not set, Redis has cut off fractions of a millisecond.
	Sample Kind = "sample"

	// Final: after the workers had ended, Redis held Held.
	Final Kind = "final"

	// Last: the last obtain of Keys, after the workers had ended, ended with Outcome.
	Last Kind = "last"
)

// Event is one line of a history. The fields that an event does not need are zero.
type Event struct {
	Kind   Kind
	At     int64 // all times are ns of one clock; CLOCK_MONOTONIC where there are several processes
	Worker string

	Op       string // different for each obtain: "‹worker›/‹number›", or the token where each obtain has its own
	Keys     []string
	Holders  []int64
	Under    []string // the Ops of other holds
	Token    string
	FenceKey string
	Fence    int64
	Start    int64
	Refused  int64
	Limit    int64
	Until    int64
	Bound    int64
	End      int64
	TTL      time.Duration
	Left     time.Duration
	Grace    time.Duration
	Need     int64

	Name    string
	Outcome string
	Options []string
	Target  string

	Queue, Custom, Lost, Lossy, Fresh, Exact bool

	Held []Held
}

// HoldersOf returns the Holders of a grant of keys: any number may hold those in shared, permits says how many may hold
// others, and the rest is exclusive.
func HoldersOf(keys, shared []string, permits map[string]int) (all []int64) {
	if len(shared)+len(permits) == 0 {
		return nil
	}
	for _, key := range keys {
		most := int64(max(permits[key], 1))
		if slices.Contains(shared, key) {
			most = 0
		}
		all = append(all, most)
	}
	return all
}

// Held is one key that Redis holds.
type Held struct {
	Key    string
	Owner  string        // the Op of its value; "" if the value names none
	Token  string        // of its value; "" if it is not known
	TTL    time.Duration // negative: it never expires
	Server int           // the number of the server, from 1 on
}
