// Package screen draws on a terminal again and again: one line while a command waits, or a whole screen of rows that the
// user looks through. It knows nothing of Redis and locks: a row has a key, and a [Source] knows what that is.
package screen
