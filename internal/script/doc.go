// Package script knows what to send to the scripts, and what their replies and messages mean. It does no I/O: it makes calls
// for package transport, and reads their replies.
//
//	Keys, Obtain ──► Scripts.Obtain, Release, Refresh, … ──► *transport.Call ──► sent by its owner
//	Grant, Loss, Held, Blocker, Waiter ◄── Read… ◄── Call.Reply
//	Message ◄── ReadMessage ◄── what a script has published
//
// The header of each script is the contract that this package keeps: what KEYS and ARGV are, and what each reply means. The
// scripts of a lock's life (obtain, refresh, release, pttl) are at the top of the repository, where the root embeds them.
// All others are here, with the texts that several scripts include (line, guard).
//
// # Invariants
//
//   - A call is for one Redis. Its owner sets Ctx, GiveUp and the other fields that say how to send it.
//   - A reply that no script gives is an error, never a grant or a loss.
//   - Only And… and Limit change the arguments of a call, and only before it is sent.
//
// decisions.go gives the reasons of what could be otherwise.
package script
