// Package need says what a test without a suite needs of its machine.
package need

import (
	"os"
	"testing"

	"github.com/redislock/redislock/internal/testing/redistest"
)

// Server skips a test where redistest finds no redis-server, or fails it if REDISLOCK_TEST_REQUIRE says that there must be
// one.
func Server(tb testing.TB) {
	tb.Helper()
	err := redistest.Available()
	switch {
	case err == nil:
	case os.Getenv("REDISLOCK_TEST_REQUIRE") == "1":
		tb.Fatal(err)
	default:
		tb.Skip(err)
	}
}
