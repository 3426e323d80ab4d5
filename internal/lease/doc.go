// Package lease computes how long a hold on keys certainly lasts. It gets the send times and ttls of requests, uses both
// clocks of the machine, and allows for requests that were never answered. It does not know Redis, and it never waits.
//
// decisions.go gives the reasons of what could be otherwise.
package lease
