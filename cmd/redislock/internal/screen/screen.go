package screen

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

// escTime is how long the bytes of one key may be apart. Over a slow network, they may come one by one. Only after that time
// is Esc the key, and not the beginning of another one.
const escTime = 500 * time.Millisecond

// browser is a screen at work. It belongs to one goroutine; others send it what they have found.
type browser struct {
	ctx    context.Context
	tty    *os.File
	getenv func(string) string
	source *Source

	canvas   canvas
	screen   term.Screen
	keyboard keyboard
	results  chan func()

	list      list
	looked    time.Time // when the last look succeeded; zero if none has
	failure   error     // of the last look
	looking   bool
	again     bool // look again as soon as this look has ended
	due       <-chan time.Time
	order     int    // index in source.Orders
	filtering bool   // the user writes a filter
	message   string // the last line, until the next key

	page      Page // shown instead of the list; nil for none
	pageKey   string
	pageTop   int
	question  *Question // nil for none
	over      bool
	firstFail error
}

// Run shows what the source has. It returns nil when the user leaves, the cause of ctx when that ends, and the error of the
// first look. It takes the alternate screen of the terminal, and gives it back however it ends, also with a panic.
func Run(ctx context.Context, tty *os.File, getenv func(string) string, source *Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &browser{
		ctx: ctx, tty: tty, getenv: getenv, source: source, canvas: canvas{out: tty},
		screen: term.ScreenOf(tty, getenv), results: make(chan func()),
	}
	resized, stopped := job.Resizes(), job.Stops()
	defer signal.Stop(resized)
	keys, leave := b.enter()
	defer func() { leave() }()
	b.look()
	var silence <-chan time.Time // of the keyboard, in the middle of a key
	for !b.over {
		if err := b.draw(); err != nil {
			return err
		}
		select {
		case text := <-keys:
			silence = b.take(text)
			for range len(keys) { // on a slow terminal, draw once for several keys
				silence = b.take(<-keys)
			}
		case <-silence:
			b.pressAll(b.keyboard.giveUp())
		case update := <-b.results:
			update()
		case b.message = <-source.Messages:
		case <-b.due:
			b.look()
		case <-resized:
			b.screen, b.canvas.shown = term.ScreenOf(tty, getenv), nil
		case <-stopped:
			leave()
			job.Suspend()
			keys, leave = b.enter()
			b.screen, b.canvas.shown = term.ScreenOf(tty, getenv), nil
			b.look()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return b.firstFail
}

// enter takes the screen and the keyboard, until leave is called.
func (b *browser) enter() (keys chan byte, leave func()) {
	_, _ = b.tty.WriteString(enterScreen)
	b.canvas.shown = nil
	keys, left := make(chan byte, 1024), make(chan struct{})
	end := job.ReadKeys(func(key byte) {
		select {
		case keys <- key:
		case <-left:
		}
	})
	return keys, func() {
		close(left)
		end() // before the normal screen is back: what is typed there is for the shell
		_, _ = b.tty.WriteString(leaveScreen)
	}
}

// take takes a byte of the keyboard. It returns when to give up waiting for the rest of a key; nil for never.
func (b *browser) take(text byte) <-chan time.Time {
	b.pressAll(b.keyboard.press(text))
	if b.keyboard.isPartial() {
		return time.After(escTime)
	}
	return nil
}

func (b *browser) pressAll(keys []key) {
	for _, k := range keys {
		b.press(k)
	}
}

// ask calls do in a goroutine. The function that do returns is called by the goroutine of the browser, and also what do
// panics with, so that the terminal is restored.
func (b *browser) ask(do func(context.Context) (update func())) {
	go func() {
		var update func()
		defer func() {
			if p := recover(); p != nil {
				text := fmt.Sprintf("%v\n%s", p, debug.Stack())
				update = func() { panic(text) }
			}
			select {
			case b.results <- update:
			case <-b.ctx.Done():
			}
		}()
		update = do(b.ctx)
	}()
}

// look asks the source for the rows, and for the key that is inspected.
func (b *browser) look() {
	if b.looking {
		b.again = true
		return
	}
	b.looking, b.again, b.due = true, false, nil
	order := ""
	if b.sorts() {
		order = b.source.Orders[b.order]
	}
	b.ask(func(ctx context.Context) func() {
		rows, err := b.source.Look(ctx, order)
		return func() { b.see(rows, err) }
	})
	if b.pageKey != "" {
		b.inspect(b.pageKey)
	}
}

func (b *browser) see(rows *Rows, err error) {
	b.looking, b.failure = false, err
	switch {
	case err != nil && b.looked.IsZero():
		b.over, b.firstFail = true, err
	case err == nil:
		b.looked = time.Now()
		b.list.update(rows)
	}
	if b.due = time.After(b.source.Every); b.again {
		b.look()
	}
}

// inspect shows all about a key, or shows it anew.
func (b *browser) inspect(key string) {
	b.pageKey = key
	b.ask(func(ctx context.Context) func() {
		page, err := b.source.Inspect(ctx, key)
		return func() {
			switch {
			case b.pageKey != key || b.question != nil: // the user has left it
			case err != nil && b.page == nil:
				b.pageKey, b.message = "", oneLine(err)
			case err != nil:
				b.message = oneLine(err)
			default:
				b.page = page
			}
		}
	})
}

// free asks whether to free a key.
func (b *browser) free(key string) {
	b.ask(func(ctx context.Context) func() {
		question, err := b.source.Free(ctx, key)
		return func() {
			if err != nil {
				b.message = oneLine(err)
				return
			}
			b.question, b.pageTop = question, 0
		}
	})
}

// answer ends the question.
func (b *browser) answer(yes bool) {
	question := b.question
	b.question, b.message = nil, question.No
	if !yes {
		return
	}
	b.message = "one moment…"
	b.ask(func(ctx context.Context) func() {
		done, err := question.Yes(ctx)
		return func() {
			if b.message = done; err != nil {
				b.message = oneLine(err)
			}
			b.look()
		}
	})
}

func oneLine(err error) string {
	return words.Printable(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "redislock: "), "\n", ": "))
}
