// Package inbox delivers messages to many members through one subscription. It knows channels and members. It does not know
// keys, scripts or Redis.
package inbox
