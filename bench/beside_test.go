package main

import (
	"context"
	"errors"
	"testing"
)

func TestBeside(t *testing.T) {
	b := newBeside()
	t.Cleanup(b.close)
	failed := errors.New("failed")
	if err := b.do(t.Context(), func() error { return failed }); err != failed {
		t.Errorf("do returned %v in place of the call's error", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	err := b.do(ctx, func() error {
		cancel()
		<-hangs
		return failed
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("do returned %v while the call hung and ctx had ended", err)
	}
	if err := b.do(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("a call beside one that hangs: %v", err)
	}
}
