package script

// # Decisions
//
// Release and refresh reply with signed indices: i for a key that another holder has, -i for a key that is gone. The
// usual replies are plain integers: 1 for a grant, 0 for no loss. An array with one element costs one more µs, for the
// table in Lua and the parsing in Go, of the 42 µs that a pair takes.
