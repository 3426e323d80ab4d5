// Package schedule looks at items when they are due. It does so in rounds, so that work that is due at about the same time
// can be done together. It does not know what the items are.
//
// decisions.go gives the reasons of what could be otherwise.
package schedule
