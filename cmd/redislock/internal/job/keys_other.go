//go:build !unix

package job

// Keyboard reads no keys here.
type Keyboard struct{}

// OpenKeyboard returns nil.
func OpenKeyboard(func(key byte)) *Keyboard { return nil }

// Close does nothing.
func (*Keyboard) Close() {}

// OnResize does nothing where no signal tells of a new size.
func OnResize(func()) (end func()) { return func() {} }
