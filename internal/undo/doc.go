// Package undo runs the releases that go on in the background at one Redis.
//
// A call that has returned may leave keys behind: an abandoned obtain may have acquired them, or a Release was not answered.
// A cleanup releases them:
//
//	Run, Sweep, Persist ──► a goroutine: send, pause, send again … ──► Report
//	                   └──► no room: nothing is sent, and the keys expire with their ttl ──► Report, with Dropped
//	WaitForOwn ──► hurries the pauses of work under the same token ──► returns when that work has ended
//
// # Invariants
//
//   - Each goroutine ends with its job, and a job ends soon after the GiveUp of its release.
//   - Work is known from before its first request is sent until after its last request has ended. So an obtain with the same
//     token that has waited for the work meets none of its requests on the server.
//   - If a cleanup leads to another one, the other one has begun when the first one ends.
//   - Report is called while no mutex of this package is held.
//
// This package knows neither for how long a lock is valid nor what a line is.
//
// decisions.go gives the reasons of what could be otherwise.
package undo
