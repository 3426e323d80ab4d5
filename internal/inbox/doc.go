// Package inbox delivers messages to many members through one subscription, and tells their owner when messages begin to
// arrive and which of them are for nobody. It knows channels and members. It does not know keys, scripts or Redis.
//
// decisions.go gives the reasons of what could be otherwise.
package inbox
