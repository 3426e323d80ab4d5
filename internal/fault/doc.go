// Package fault has the errors that all parts of the library share, and makes one error from another.
//
//	an error of Redis or the network ── WithHint ── Failed ──► with the operation, the keys, and what to do
//	a ctx that has ended             ── Ended ── NotObtained ──► with the cause of ctx
//	an argument that cannot be used  ── Invalid ──► with what to do
//
// The root exports the sentinels and says what they mean to a caller. Everything here is safe for concurrent use.
package fault
