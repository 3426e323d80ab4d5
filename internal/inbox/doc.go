// Package inbox delivers messages to many members through one subscription. It knows channels and members. It does not know
// keys, scripts or Redis.
//
// decisions.go gives the reasons of what could be otherwise.
package inbox
