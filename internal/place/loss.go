package place

import (
	"fmt"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/script"
)

// ReadLoss reads a reply of refresh or release. The error is nil if nothing is lost, whole if all keys are, and otherwise
// that of lossError; or it says that no script gives such a reply.
func (p *Place) ReadLoss(keys []string, reply any, whole error) (script.Loss, error) {
	l, err := script.ReadLoss(keys, reply)
	if err == nil {
		err = p.LossError(l, whole)
	}
	return l, err
}

// LossError returns the error for a loss: nil for none, whole if all keys are lost, and otherwise a LostError of the root.
func (p *Place) LossError(l script.Loss, whole error) error {
	switch {
	case l.IsNone():
		return nil
	case l.IsWhole():
		return whole
	}
	return p.set.LostError(l, whole)
}

// lossOf returns what to tell of a loss. If another holds any of the keys, that is its cause.
func lossOf(l script.Loss) life.Loss {
	if l.Taken > 0 {
		return life.Loss{Cause: life.Taken, Keys: l.Keys}
	}
	return life.Loss{Cause: life.Gone, Keys: l.Keys}
}

// contextCause returns the cause of a loss for the contexts of a kept lock.
func (p *Place) contextCause(l script.Loss) error {
	switch err := p.LossError(l, fault.ErrLockNotHeld); {
	case err != fault.ErrLockNotHeld:
		return err
	case l.Other != "":
		return fmt.Errorf("%w: another holder has %q", fault.ErrLockNotHeld, l.Other)
	}
	return fmt.Errorf("%w: %s is gone", fault.ErrLockNotHeld, fault.Describe(l.Keys))
}
