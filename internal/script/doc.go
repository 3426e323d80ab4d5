// Package script knows what is sent to the scripts, and what their replies and messages mean. It does no I/O: it makes calls
// for package transport, and reads what these bring.
//
//	Keys, Obtain ──► Scripts.Obtain, Release, Refresh, … ──► *transport.Call ──► sent by its owner
//	Grant, Loss, Held, Blocker, Waiter ◄── Read… ◄── Call.Reply
//	Message ◄── ReadMessage ◄── what a script has published
//
// The header of each script is the contract that this package keeps: what KEYS and ARGV are, and what each reply means. The
// scripts stand at the top of the repository, so the root embeds them.
//
// # Invariants
//
//   - A call is made for one Redis. Its owner sets Ctx, GiveUp and what else concerns the sending.
//   - A reply that no script gives is an error, never a grant or a loss.
//   - The arguments of a call that is not sent yet may be changed by And… and Limit, and by nothing else.
//
// # Decisions
//
// Release and refresh reply with signed indices: i for a key that another holder has, -i for a key that is gone. The
// usual replies are plain integers: 1 for a grant, 0 for no loss. An array with one element costs one more µs, for the
// table in Lua and the parsing in Go, of the 42 µs that a pair takes.
package script
