package history_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

var full = history.Event{
	Kind: history.Grant, At: 1, Worker: "w1", Op: "w1/2", Keys: []string{"{a}:1", "{a}:2"}, Holders: []int64{1, 0},
	Under: []string{"w1/1", "w1/0"}, Token: "t", FenceKey: "f", Fence: 3, Start: 4, Refused: 5, Limit: 6, Until: 7, Bound: 8, End: 9, TTL: time.Second, Left: -time.Millisecond, Grace: time.Hour, Need: 3,
	Name: "Obtain", Outcome: "granted", Options: []string{"queue", "fence"}, Target: "w2",
	Queue: true, Custom: true, Lost: true, Lossy: true, Fresh: true, Exact: true,
	Held: []history.Held{{Key: "{a}:1", Owner: "w1/2", Token: "t", TTL: time.Second, Server: 3}, {Key: "{a}:2", TTL: -1}},
}

func TestAnEventIsReadAsItWasWritten(t *testing.T) {
	got, err := history.Parse(full.String())
	if err != nil || !reflect.DeepEqual(got, full) {
		t.Errorf("got %+v, %v", got, err)
	}
	small := history.Event{Kind: history.Beat, At: 1}
	if line := small.String(); line != "beat at=1" {
		t.Errorf("zero fields are written: %q", line)
	}
}

// A field that Append forgot would be lost without notice.
func TestEveryFieldIsWritten(t *testing.T) {
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the test does not set %s", v.Type().Field(i).Name)
		}
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, line := range []string{"", "beat", "beat at=x", "beat at=1 color=red", "sample at=1 held=a;b;3", "sample at=1 held=a;b;3;c", "done at=1 ttl=s", "grant at=1 holders=2,x"} {
		if e, err := history.Parse(line); err == nil {
			t.Errorf("%q was read as %+v", line, e)
		}
	}
}

func TestAReaderFollowsAFileWhoseLastLineIsUnfinished(t *testing.T) {
	name := filepath.Join(t.TempDir(), "w1")
	w, err := history.Create(name, "w1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := history.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	expect := func(want ...int64) {
		t.Helper()
		events, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, e := range events {
			got = append(got, e.At)
			if e.Worker != "w1" {
				t.Errorf("worker %q", e.Worker)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	expect()
	w.Write(history.Event{Kind: history.Beat, At: 1})
	w.Write(history.Event{Kind: history.Beat, At: 2})
	expect(1, 2)
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(part string) {
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	write("beat a")
	expect()
	write("t=3 worker=w1\nbeat")
	expect(3)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestCreateNeverOverwritesAHistory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "w1")
	w, err := history.Create(name, "w1")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := history.Create(name, "w1"); err == nil {
		t.Error("a second worker wrote to the same file")
	}
}
