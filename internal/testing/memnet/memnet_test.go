package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/testing/memnet"
)

// inBubble runs test on fake time, with both ends of a connection that was dialled.
func inBubble(t *testing.T, test func(t *testing.T, near, far net.Conn)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		listener := memnet.Listen()
		defer listener.Close()
		accepted := make(chan net.Conn, 1)
		go func() { // ends with the one connection
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- conn
		}()
		near, err := memnet.Dial(t.Context(), "tcp", listener.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far := <-accepted
		defer far.Close()
		test(t, near, far)
	})
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T, near, far net.Conn) {
		want := bytes.Repeat([]byte("0123456789"), 100_000)
		if n, err := near.Write(want); n != len(want) || err != nil { // nobody reads yet
			t.Fatal(n, err)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(far); !bytes.Equal(got, want) || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

func TestHalfClose(t *testing.T) {
	inBubble(t, func(t *testing.T, near, far net.Conn) {
		if err := near.(*memnet.Conn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the other end reads: %v", err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Errorf("the other end writes: %v", err)
		}
		if n, err := near.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("Read after CloseWrite: %d, %v", n, err)
		}
	})
}

func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, near, far net.Conn) {
		ended := make(chan error)
		go func() { // ends with near
			_, err := near.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		near.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a Read under way: %v", err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a Write at the other end: %v", err)
		}
	})
}

// A goroutine that waits for a connection does not stop the clock of the bubble.
func TestDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, near, far net.Conn) {
		began := time.Now()
		near.SetDeadline(began.Add(time.Hour))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Hour {
			t.Errorf("Read: %v, after %v", err, time.Since(began))
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write: %v", err)
		}
		near.SetDeadline(time.Time{})
		if _, err := near.Write([]byte("x")); err != nil {
			t.Errorf("Write without a deadline: %v", err)
		}
		go func() { // ends by itself
			time.Sleep(time.Hour)
			_, _ = far.Write([]byte("x"))
		}()
		if _, err := near.Read(make([]byte, 1)); err != nil || time.Since(began) != 2*time.Hour {
			t.Errorf("Read without a deadline: %v, after %v", err, time.Since(began))
		}
	})
}

func TestDial(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		listener := memnet.Listen()
		addr := listener.Addr()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := memnet.Dial(ctx, "tcp", addr); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while nobody accepts: %v", err)
		}
		listener.Close()
		listener.Close()
		if _, err := memnet.Dial(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}

func TestHas(t *testing.T) {
	listener := memnet.Listen()
	defer listener.Close()
	for addr, want := range map[string]bool{
		listener.Addr(): true, "127.0.0.1:6379": false, "127.0.0.1:65535": false, "localhost": false, "": false, "127.0.0.1:x": false,
	} {
		if memnet.Has(addr) != want {
			t.Errorf("Has(%q) is %v", addr, !want)
		}
	}
	if _, err := net.Dial("tcp", listener.Addr()); err == nil {
		t.Error("a socket reaches it")
	}
}
