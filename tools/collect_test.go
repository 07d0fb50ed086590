package tools_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/tools"
)

// A body counts the bytes read from it and how often it is closed.
type body struct {
	io.Reader
	read   atomic.Int64
	closed atomic.Int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read.Add(int64(n))
	return n, err
}

func (b *body) Close() error {
	b.closed.Add(1)
	return nil
}

type endless struct{ text string }

func (e endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], e.text)
	}
	return n, nil
}

// nothing is a reader that never returns a byte or an error.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

type wrong struct{}

func (wrong) Read(p []byte) (int, error) { return len(p) + 1, nil }

type breaking struct{}

func (breaking) Read([]byte) (int, error) { return 0, errBoom }

func TestCollect(t *testing.T) {
	const most = turnkeeper.MaxOutputBytes
	x := strings.Repeat("x", most)
	tests := []struct {
		name   string
		result tools.Result
		want   tools.Result
	}{
		{"text", tools.Result{Text: "a", MediaType: "text/x"}, tools.Result{Text: "a", MediaType: "text/x"}},
		{"text as large as can be", tools.Result{Text: x}, tools.Result{Text: x}},
		{"text one byte larger", tools.Result{Text: x + "y"}, tools.Result{Text: x, Incomplete: true,
			RawBytes: most + 1}},
		{"a split character", tools.Result{Text: x[1:] + "é"}, tools.Result{Text: x[1:], Incomplete: true,
			RawBytes: most + 1}},
		{"cut by the tool, in a character", tools.Result{Text: "a\xf0\x9f\x98", Incomplete: true},
			tools.Result{Text: "a", Incomplete: true}},
		{"cut by the tool, after a broken byte", tools.Result{Text: "a\xff", Incomplete: true},
			tools.Result{Text: "a\xff", Incomplete: true}},
		{"bytes", tools.Result{Bytes: []byte{}, Text: "not used"}, tools.Result{Bytes: []byte{}}},
		{"bytes, too many", tools.Result{Bytes: make([]byte, most+2)}, tools.Result{Bytes: make([]byte, most),
			Incomplete: true, RawBytes: most + 2}},
		{"body", tools.Result{Body: strings.NewReader("a"), Text: "not used"}, tools.Result{Text: "a"}},
		{"binary body", tools.Result{Body: strings.NewReader("a"), MediaType: "image/png"},
			tools.Result{Bytes: []byte("a"), MediaType: "image/png"}},
		{"empty binary body", tools.Result{Body: strings.NewReader(""), MediaType: "image/png"},
			tools.Result{Bytes: []byte{}, MediaType: "image/png"}},
		{"body as large as can be", tools.Result{Body: strings.NewReader(x)}, tools.Result{Text: x}},
		{"endless body", tools.Result{Body: endless{"x"}}, tools.Result{Text: x, Incomplete: true}},
		{"endless body, a split character", tools.Result{Body: io.MultiReader(strings.NewReader(x[1:]), endless{"é"})},
			tools.Result{Text: x[1:], Incomplete: true}},
		{"endless binary body", tools.Result{Body: endless{"\x00"}, MediaType: "a/b"},
			tools.Result{Bytes: make([]byte, most), MediaType: "a/b", Incomplete: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tools.Collect(t.Context(), tt.result)
			// cmp is slow on so many bytes
			same := bytes.Equal(tt.want.Bytes, got.Bytes) && (tt.want.Bytes == nil) == (got.Bytes == nil)
			tt.want.Bytes, got.Bytes = nil, nil
			if err != nil || !same || !cmp.Equal(tt.want, got) {
				t.Errorf("error %v; %d characters, same bytes %v, incomplete %v, of %d, as %q", err, len(got.Text),
					same, got.Incomplete, got.RawBytes, got.MediaType)
			}
		})
	}
}

func TestCollectReadsNoMoreThanItKeeps(t *testing.T) {
	b := &body{Reader: endless{"x"}}
	if _, err := tools.Collect(t.Context(), tools.Result{Body: b}); err != nil {
		t.Fatal(err)
	}
	if read, closed := b.read.Load(), b.closed.Load(); read != turnkeeper.MaxOutputBytes+1 || closed != 1 {
		t.Errorf("%d bytes were read, and it was closed %d times", read, closed)
	}
}

func TestCollectFaults(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errBoom)
	tests := []struct {
		name string
		ctx  context.Context
		body io.Reader
		want string
	}{
		{"breaks off", t.Context(), io.MultiReader(strings.NewReader("abc"), breaking{}),
			"the result broke off after 3 bytes: disk on fire"},
		{"counts wrongly", t.Context(), wrong{}, "the result broke off after 0 bytes: its reader counts wrongly"},
		{"no time left", over, strings.NewReader("abc"), "disk on fire"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &body{Reader: tt.body}
			if _, err := tools.Collect(tt.ctx, tools.Result{Body: b}); err == nil || err.Error() != tt.want {
				t.Errorf("error = %v", err)
			}
			if b.closed.Load() == 0 {
				t.Error("it was not closed")
			}
		})
	}
}

func TestExecuteBoundsABody(t *testing.T) {
	pipe, _ := io.Pipe() // has no writer; a read ends when it is closed
	tests := []struct {
		name string
		body io.Reader
	}{
		{"one that waits, and can be closed", pipe},
		{"one that gives nothing", nothing{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tool := named("slow")
			tool.run = func(context.Context, tools.Call) (tools.Result, error) {
				return tools.Result{Body: tt.body}, nil
			}
			got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{Timeout: 20 * time.Millisecond,
				Grace: time.Minute})
			if got.Outcome != tools.TimedOut || got.Abandoned {
				t.Errorf("%s, abandoned %v", got.Outcome, got.Abandoned)
			}
		})
	}
}

func TestABodyOfAToolThatFailedIsClosed(t *testing.T) {
	b := &body{Reader: nothing{}}
	tool := named("fake")
	tool.run = func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{Body: b}, errBoom }
	if got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{}); !errors.Is(got.Err, errBoom) ||
		b.closed.Load() != 1 {
		t.Errorf("%+v, closed %d times", got, b.closed.Load())
	}
}

// TestAHugeTextIsLetGo tests that only the kept part of a result stays in memory.
func TestAHugeTextIsLetGo(t *testing.T) {
	for name, run := range map[string]func() (tools.Result, error){
		"text":  func() (tools.Result, error) { return tools.Result{Text: strings.Repeat("x", 512<<20)}, nil },
		"bytes": func() (tools.Result, error) { return tools.Result{Bytes: bytes.Repeat([]byte{0}, 512<<20)}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			tool := named("large")
			tool.run = func(context.Context, tools.Call) (tools.Result, error) { return run() }
			before := heap()
			got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{})
			if grown := int64(heap()) - int64(before); grown > 32<<20 {
				t.Errorf("%d MiB are held for %d bytes", grown>>20, len(got.Result.Text)+len(got.Result.Bytes))
			}
			runtime.KeepAlive(got)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestExecuteTellsOfAbandonedTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := named("deaf")
		tool.run = func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(time.Minute)
			return tools.Result{}, nil
		}
		told := make(chan string, 2)
		got := tools.Execute(t.Context(), tool, tools.Call{}, tools.ExecuteOptions{
			Timeout:   time.Second,
			Abandoned: func() { told <- "abandoned" },
			Late:      func(tools.RunResult) { told <- "late" },
		})
		if first, second := <-told, <-told; !got.Abandoned || first != "abandoned" || second != "late" {
			t.Errorf("abandoned %v; told %s and %s", got.Abandoned, first, second)
		}
	})
}

// A brokenCloser blocks reads until it is closed. Close panics.
type brokenCloser struct{ closed chan struct{} }

func (b brokenCloser) Read([]byte) (int, error) {
	<-b.closed
	return 0, io.EOF
}

func (b brokenCloser) Close() error {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	panic("it cannot be closed")
}

// TestABodyThatPanicsWhenItIsClosed tests that such a Body ends neither the program,
// though another goroutine closes it after the timeout, nor a result that was read.
func TestABodyThatPanicsWhenItIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		waits   bool
		timeout time.Duration
		want    tools.Outcome
	}{"in time": {false, time.Minute, tools.Succeeded}, "too late": {true, 10 * time.Millisecond, tools.TimedOut}} {
		body := brokenCloser{make(chan struct{})}
		if !c.waits {
			close(body.closed)
		}
		tool := tools.New(tools.Spec{Name: "tool"}, func(context.Context, tools.Call, struct{}) (tools.Result, error) {
			return tools.Result{Body: body}, nil
		})
		got := tools.Execute(t.Context(), tool, tools.Call{Arguments: []byte(`{}`)},
			tools.ExecuteOptions{Timeout: c.timeout})
		if got.Outcome != c.want {
			t.Errorf("%s: %s: %q", name, got.Outcome, got.Result.Text)
		}
	}
}
