package agentturn_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/inference"
	"turnkeeper/tools"
)

// A draftJournal accepts drafts, by functions of the test.
type draftJournal struct {
	*memJournal
	mu      sync.Mutex
	keep    bool
	content bytes.Buffer
	parts   int
	largest int
	dropped []turnkeeper.OutputID
	fail    error
}

func (j *draftJournal) WriteDraft(_ context.Context, part turnkeeper.OutputPart) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	if part.FirstByte == 0 {
		j.content.Reset()
	}
	j.parts++
	j.largest = max(j.largest, len(part.Text)+len(part.Bytes))
	if j.keep {
		j.content.WriteString(part.Text)
		j.content.Write(part.Bytes)
	}
	return nil
}

func (j *draftJournal) DropDraft(_ context.Context, id turnkeeper.OutputID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dropped = append(j.dropped, id)
	return nil
}

var _ toolrun.Drafts = (*draftJournal)(nil)

// streamed runs a turn with one call, whose result open returns.
func streamed(t *testing.T, b *testEnv, j *draftJournal, open func() tools.Result) (turnkeeper.ToolCall, *turnkeeper.Output) {
	t.Helper()
	tool := read("stream").does(func(context.Context, tools.Call) (tools.Result, error) { return open(), nil })
	b.with(tool)
	record, journal := b.store.dispatch()
	j.memJournal = journal
	a := agentturn.Assignment{Record: record, Definition: b.def}
	if _, err := b.runner().Run(t.Context(), a, j); err != nil {
		t.Fatal(err)
	}
	call := b.store.calls()[0]
	if call.OutputID == "" {
		return call, nil
	}
	out, err := b.store.output(call.OutputID)
	if err != nil {
		t.Fatal(err)
	}
	return call, &out
}

// repeated reads the text repeatedly, n bytes in total, and measures the live memory
// meanwhile.
type repeated struct {
	text    string
	n, at   int64
	every   int64
	peak    uint64
	between int64
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.at == r.n {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && r.at < r.n {
		from := int(r.at % int64(len(r.text)))
		c := copy(p[n:min(len(p), n+int(r.n-r.at))], r.text[from:])
		n, r.at = n+c, r.at+int64(c)
	}
	if r.between += int64(n); r.every > 0 && r.between >= r.every {
		r.between = 0
		r.peak = max(r.peak, liveHeap())
	}
	return n, nil
}

func liveHeap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A result of 12 MB and a stream of a gigabyte take little memory, with any content, and no
// more is read than is stored.
func TestALargeResultIsWrittenWhileItComes(t *testing.T) {
	const text = "日本語 é \xff\xfe broken \x00 and plain text, as it goes on and on. "
	clean := strings.ToValidUTF8(text, "\uFFFD")
	clean = strings.ReplaceAll(clean, "\x00", "")
	for name, c := range map[string]struct {
		size      int64
		mediaType string
		declared  int64
		raw       int64
		note      string
	}{
		"12 MB":                   {12_000_000, "", 0, turnkeeper.MaxOutputBytes, "\n\n[cut: the result was larger than this; the rest was not kept]"},
		"12 MB of known size":     {12_000_000, "", 12_000_000, 12_000_000, "\n\n[cut: the result had 12000000 bytes; what is missing at its end was not kept]"},
		"a gigabyte":              {1 << 30, "text/plain", 0, turnkeeper.MaxOutputBytes, "\n\n[cut: the result was larger than this; the rest was not kept]"},
		"a gigabyte, binary":      {1 << 30, "image/png", 0, turnkeeper.MaxOutputBytes, ""},
		"a megabyte":              {1 << 20, "", 0, 1 << 20, ""},
		"as much as can be":       {turnkeeper.MaxOutputBytes, "", 0, turnkeeper.MaxOutputBytes, ""},
		"one byte more than that": {turnkeeper.MaxOutputBytes + 1, "", 0, turnkeeper.MaxOutputBytes, "\n\n[cut: the result was larger than this; the rest was not kept]"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newEnv(t, asks("stream"), says("Done."))
			j := &draftJournal{}
			source := &repeated{text: text, n: c.size, every: 1 << 20}
			before := liveHeap()
			call, out := streamed(t, b, j, func() tools.Result {
				return tools.Result{Body: source, MediaType: c.mediaType, RawBytes: c.declared}
			})
			grown := max(source.peak, before) - before
			t.Logf("%d KiB were live at most beyond what was before; %d parts of at most %d KiB", grown>>10, j.parts, j.largest>>10)
			if grown > 4<<20 {
				t.Errorf("%d MiB are held", grown>>20)
			}
			if source.at > turnkeeper.MaxOutputBytes+1 {
				t.Errorf("%d bytes were read", source.at)
			}
			if out == nil || call.State != turnkeeper.CallSucceeded {
				t.Fatalf("%s: %s", call.State, call.Shown)
			}
			kept := min(c.size, turnkeeper.MaxOutputBytes)
			if !out.Drafted || out.Text != "" || len(out.Bytes) != 0 || out.Incomplete != (c.size > kept) || out.RawBytes < c.raw-3 || out.RawBytes > c.raw {
				t.Errorf("%+v", *out)
			}
			whole := wholeText(text, clean, kept, c.mediaType == "image/png", out.Incomplete)
			if sum := sha256.Sum256(whole); out.SHA256 != hex.EncodeToString(sum[:]) || out.SizeBytes != int64(len(whole)) {
				t.Errorf("it has %d bytes, want %d; hash %s", out.SizeBytes, len(whole), out.SHA256)
			}
			if c.mediaType != "image/png" {
				first := string([]rune(clean + strings.Repeat(clean, 200))[:6000])
				if want := first + "\n\n[... truncated: showing first 6000 of "; !strings.HasPrefix(call.Shown, want) || !strings.HasSuffix(call.Shown, " chars]"+c.note) {
					t.Errorf("the model is shown %q", call.Shown[len(first):])
				}
			}
		})
	}
}

// wholeText returns the stored part of a repeated text.
func wholeText(text, clean string, n int64, binary, cut bool) []byte {
	raw := strings.Repeat(text, int(n)/len(text)+1)[:n]
	if binary {
		return []byte(raw)
	}
	whole := strings.Repeat(clean, int(n)/len(text))
	rest := raw[int(n)/len(text)*len(text):]
	for cut && len(rest) > 0 && strings.HasSuffix(strings.ToValidUTF8(rest, "\uFFFD"), "\uFFFD") && !strings.HasSuffix(rest, "\xfe") && !strings.HasSuffix(rest, "\xff") {
		rest = rest[:len(rest)-1]
	}
	return []byte(whole + strings.ReplaceAll(strings.ToValidUTF8(rest, "\uFFFD"), "\x00", ""))
}

// A small result, or one that can be shown whole, is the same as without drafts.
func TestASmallResultIsNotWrittenEarly(t *testing.T) {
	for name, c := range map[string]struct {
		size, maxChars int
		stored         bool
	}{
		"shown whole":                 {5000, 6000, false},
		"longer than what is shown":   {100_000, 6000, true},
		"large, and to be shown all":  {500_000, 1_000_000, false},
		"larger than a part, all too": {999_999, 1_000_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newEnv(t, asks("stream"), says("Done."))
			b.bounds.MaxToolResultChars = c.maxChars
			b.windows["main/model"] = 10_000_000
			j := &draftJournal{}
			call, out := streamed(t, b, j, func() tools.Result { return tools.Result{Body: strings.NewReader(strings.Repeat("x", c.size))} })
			if j.parts != 0 || (out != nil) != c.stored || out != nil && (out.Drafted || out.RawBytes != int64(c.size)) {
				t.Errorf("%d parts, %+v", j.parts, out)
			}
			if !c.stored && call.Shown != strings.Repeat("x", c.size) {
				t.Errorf("the model is shown %d characters", len(call.Shown))
			}
		})
	}
}

// A stream that blocks ends at the call's timeout, and one that cannot be stored fails its
// call. Nothing of either remains.
func TestAStreamThatComesToNothing(t *testing.T) {
	boom := errors.New("the disk is full")
	begin := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		body  func() io.Reader
		fail  error
		shown string
		drops int
	}{
		"blocks":          {func() io.Reader { r, _ := io.Pipe(); return closing{io.MultiReader(strings.NewReader(begin), r), r} }, nil, "tool error: 'stream' timed out after 60 s", 1},
		"gives nothing":   {func() io.Reader { return io.MultiReader(strings.NewReader(begin), slowly{}) }, nil, "tool error: 'stream' timed out after 60 s", 1},
		"breaks off":      {func() io.Reader { return io.MultiReader(strings.NewReader(begin), broken{boom}) }, nil, "tool error: the result broke off after 1048576 bytes: the disk is full", 1},
		"cannot be kept":  {func() io.Reader { return strings.NewReader(begin) }, boom, "tool error: the disk is full", 1},
		"breaks off soon": {func() io.Reader { return broken{boom} }, nil, "tool error: the result broke off after 0 bytes: the disk is full", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newEnv(t, asks("stream"), says("Done."))
				j := &draftJournal{fail: c.fail}
				call, out := streamed(t, b, j, func() tools.Result { return tools.Result{Body: c.body()} })
				if call.State != turnkeeper.CallFailed || call.Shown != c.shown || out != nil {
					t.Errorf("%s: %s", call.State, call.Shown)
				}
				synctest.Wait()
				if len(j.dropped) != c.drops {
					t.Errorf("dropped %v", j.dropped)
				}
				if last := lastRequest(b); !strings.Contains(last, c.shown) {
					t.Errorf("the model is told %.200s", last)
				}
			})
		})
	}
}

func lastRequest(b *testEnv) string {
	all := b.requests()
	for _, m := range all[len(all)-1].Messages {
		if m.Role == inference.RoleTool {
			return m.Text
		}
	}
	return ""
}

type closing struct {
	io.Reader
	io.Closer
}

// slowly gives nothing, after a while, again and again.
type slowly struct{}

func (slowly) Read([]byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return 0, nil
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
