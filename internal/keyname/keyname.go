// Package keyname holds the names and lengths that the library and its command line tool must agree on. It knows only
// text: nothing about Redis, and nothing about what a lock is.
package keyname

import "strings"

const (
	// LineSuffix ends the names of the keys in which the library keeps its lines. No lock key may end in it.
	LineSuffix = ":redislock:line"

	// HouseSuffix ends the names of the keys in which the library keeps who holds a key that several may hold. No lock key
	// may end in it.
	HouseSuffix = ":redislock:house"

	// NoteSuffix ends the names of the keys in which the library keeps what the holder of a key waits for itself. No lock key
	// may end in it.
	NoteSuffix = ":redislock:note"

	// SharedMark is the value of a key that several may hold. Who holds it is in its house. The scripts contain it as well.
	SharedMark = " redislock:shared"

	// HoldsVariable is the environment variable in which "redislock run" names the locks that a command runs under, as
	// WriteNames in internal/script/names.go does.
	HoldsVariable = "REDISLOCK_HOLDS"

	// GuardMarker is the key with which a guard notices that a Redis has forgotten: see internal/script/marker.lua. No lock
	// key and no fence key may be it.
	GuardMarker = "redislock:guard"

	// InboxPrefix begins the names of the channels on which releases wake waiters. The scripts contain it as well.
	InboxPrefix = "redislock:inbox:"
)

// HashTag returns the hash tag of a key: the text between its first { and the next }, if there is any.
func HashTag(key string) (string, bool) {
	_, rest, opened := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	return tag, opened && closed && tag != ""
}

// HasLine reports whether a key can have a line. A key with a brace but without a hash tag cannot, because no longer name
// could share its slot. A key like a{a} cannot, because its line would be the line of a.
func HasLine(key string) bool {
	if strings.IndexByte(key, '{') < 0 {
		return strings.IndexByte(key, '}') < 0
	}
	tag, tagged := HashTag(key)
	return tagged && key != tag+"{"+tag+"}"
}

// WriteLine writes the name of the line of a key, if it can have one. On a Cluster, the line is in the slot of its key.
// Its name begins with the key, so that an ACL by prefix covers both.
func WriteLine(name *strings.Builder, key string) { writeBeside(name, key, LineSuffix) }

// writeBeside writes the name of a key beside another one, if that can have one.
func writeBeside(name *strings.Builder, key, suffix string) {
	if !HasLine(key) {
		return
	}
	name.WriteString(key)
	if strings.IndexByte(key, '{') < 0 {
		name.WriteByte('{')
		name.WriteString(key)
		name.WriteByte('}')
	}
	name.WriteString(suffix)
}

// LineOf returns the name of the line of a key, or "" if it can have none.
func LineOf(key string) string {
	var name strings.Builder
	WriteLine(&name, key)
	return name.String()
}

// HouseOf returns the name of the house of a key, or "" if it can have none. It can have one if it can have a line.
func HouseOf(key string) string {
	var name strings.Builder
	writeBeside(&name, key, HouseSuffix)
	return name.String()
}

// NoteOf returns the name of the note about the holder of a key, or "" if it can have none. It can have one if it can have a
// line.
func NoteOf(key string) string {
	var name strings.Builder
	writeBeside(&name, key, NoteSuffix)
	return name.String()
}

// IsBeside reports whether the library keeps something about a lock key under that name, so no lock key can have it.
func IsBeside(name string) bool {
	return strings.HasSuffix(name, LineSuffix) || strings.HasSuffix(name, HouseSuffix) || strings.HasSuffix(name, NoteSuffix)
}
