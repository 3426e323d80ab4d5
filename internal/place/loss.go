package place

import (
	"fmt"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/script"
)

// LossError returns the error for a loss: nil for none, whole if all keys are lost, otherwise a LostError of the root.
func (p *Place) LossError(l script.Loss, whole error) error {
	switch {
	case l.IsNone():
		return nil
	case l.IsWhole():
		return whole
	}
	return p.set.LostError(l, whole)
}

// lossOf returns the loss as events report it. Its cause is Taken if another holds any of the keys.
func lossOf(l script.Loss) life.Loss {
	if l.Taken > 0 {
		return life.Loss{Cause: life.Taken, Keys: l.Keys}
	}
	return life.Loss{Cause: life.Gone, Keys: l.Keys}
}

// contextCause returns the error for the contexts of a kept lock that has lost keys.
func (p *Place) contextCause(l script.Loss) error {
	switch err := p.LossError(l, fault.ErrLockNotHeld); {
	case err != fault.ErrLockNotHeld:
		return err
	case l.Other != "":
		return fmt.Errorf("%w: another holder has %q", fault.ErrLockNotHeld, l.Other)
	}
	return fmt.Errorf("%w: %s is gone", fault.ErrLockNotHeld, fault.Describe(l.Keys))
}
