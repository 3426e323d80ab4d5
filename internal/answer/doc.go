// Package answer says what the error answers of a Redis server mean for the next try. It knows neither locks nor how answers
// are carried.
//
// decisions.go gives the reasons of what could be otherwise.
package answer
