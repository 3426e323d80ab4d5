package fault

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redislock/redislock/internal/transport"
)

// Failed wraps an error of Redis or the network with the operation and its keys. For the error of a Redis client that cannot
// be used, it returns one that wraps ErrInvalid.
func Failed(operation string, keys []string, err error) error {
	if unusable := (*transport.NilError)(nil); errors.As(err, &unusable) {
		return Invalid("%v", unusable)
	}
	return fmt.Errorf("redislock: %s %s: %w", operation, Describe(keys), err)
}

// Joined returns one error that wraps all of errs, in one line.
func Joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	format := strings.Repeat("%w; ", len(errs))
	args := make([]any, len(errs))
	for i, err := range errs {
		args[i] = err
	}
	return fmt.Errorf(strings.TrimSuffix(format, "; "), args...)
}

// Describe names the first key and counts the others.
func Describe(keys []string) string {
	switch len(keys) {
	case 0:
		return "nothing"
	case 1:
		return fmt.Sprintf("%q", keys[0])
	}
	return fmt.Sprintf("%q and %d more", keys[0], len(keys)-1)
}
