package answer

import (
	"errors"
	"slices"
)

// LoginError is the answer that user or password is wrong, to what go-redis sends while it connects. No script was sent, so
// nothing is in doubt. It may pass: where passwords are replaced, a program may hear of the new one later than the server.
type LoginError struct{ Err error }

func (e *LoginError) Error() string { return e.Err.Error() }
func (e *LoginError) Unwrap() error { return e.Err }

// IsLogin reports whether err is a LoginError.
func IsLogin(err error) bool {
	_, is := errors.AsType[*LoginError](err)
	return is
}

// RefusesLogin reports whether an answer says that user or password is wrong.
func RefusesLogin(err error) bool {
	return slices.ContainsFunc([]string{"WRONGPASS ", "NOAUTH ", "invalid password"}, func(begin string) bool {
		return HasCode(err, begin)
	})
}
