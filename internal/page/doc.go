// Package page shows locks, and who waits for whom, as one page for a browser. It only reads, and sends no whole token.
//
// A request finds what the last look at Redis has found, or waits for a new one if that is too old: see looker. All of one
// look is made into a view, and write.go writes that as HTML. The page asks for itself again and again, and replaces what
// has changed. It needs no other file, and works without scripts.
//
// # Decisions
//
// The package has a writer of HTML of its own, of 30 lines. A program with html/template keeps every exported method of
// every type, because a template may call it by its name: with go-redis, that is 8 MB.
package page
