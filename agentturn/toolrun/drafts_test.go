package toolrun_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A countedDraft counts the parts of one result, and discards them.
type countedDraft struct {
	parts, largest, dropped int
	fail                    error
}

func (d *countedDraft) WriteDraft(_ context.Context, part turnlog.OutputPart) error {
	if d.fail != nil {
		return d.fail
	}
	d.parts++
	d.largest = max(d.largest, len(part.Text)+len(part.Bytes))
	return nil
}

func (d *countedDraft) DropDraft(_ context.Context, id turnkeeper.OutputID) error {
	if id == "id" {
		d.dropped++
	}
	return nil
}

func (d *countedDraft) collect(ctx context.Context, maxChars int, r tools.Result) (tools.Result, error) {
	return toolrun.Collect(d, outputs.Limits{MaxChars: maxChars}, "id", zap.NewNop())(ctx, r)
}

// repeated is a reader of n bytes of repeated text. It measures the live memory while it
// is read.
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

// TestALargeResultIsWrittenWhileItComes checks that results of 12 MB and 1 GB, text or binary,
// are received with little memory, and that reading stops at the maximum stored size.
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
		"12 MB": {12_000_000, "", 0, turnkeeper.MaxOutputBytes,
			"\n\n[cut: the result was larger than this; the rest was not kept]"},
		"12 MB of known size": {12_000_000, "", 12_000_000, 12_000_000,
			"\n\n[cut: the result had 12000000 bytes; what is missing at its end was not kept]"},
		"a gigabyte": {1 << 30, "text/plain", 0, turnkeeper.MaxOutputBytes,
			"\n\n[cut: the result was larger than this; the rest was not kept]"},
		"a gigabyte, binary": {1 << 30, "image/png", 0, turnkeeper.MaxOutputBytes, ""},
		"a megabyte":         {1 << 20, "", 0, 1 << 20, ""},
		"as much as can be":  {turnkeeper.MaxOutputBytes, "", 0, turnkeeper.MaxOutputBytes, ""},
		"one byte more than that": {turnkeeper.MaxOutputBytes + 1, "", 0, turnkeeper.MaxOutputBytes,
			"\n\n[cut: the result was larger than this; the rest was not kept]"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &countedDraft{}
			source := &repeated{text: text, n: c.size, every: 1 << 20}
			before := liveHeap()
			result, err := d.collect(t.Context(), 6000, tools.Result{Body: source, MediaType: c.mediaType,
				RawBytes: c.declared})
			if err != nil {
				t.Fatal(err)
			}
			grown := max(source.peak, before) - before
			t.Logf("%d KiB were live at most beyond what was before; %d parts of at most %d KiB", grown>>10, d.parts,
				d.largest>>10)
			if grown > 4<<20 {
				t.Errorf("%d MiB are held", grown>>20)
			}
			if source.at > turnkeeper.MaxOutputBytes+1 {
				t.Errorf("%d bytes were read", source.at)
			}
			taken := result.Kept.(outputs.Taken)
			out, shown := taken.Output, taken.Shown
			kept := min(c.size, turnkeeper.MaxOutputBytes)
			if !out.Drafted || out.ID != "id" || out.Text != "" || len(out.Bytes) != 0 ||
				out.Incomplete != (c.size > kept) || out.RawBytes < c.raw-3 || out.RawBytes > c.raw {
				t.Errorf("%+v", out)
			}
			whole := wholeText(text, clean, kept, c.mediaType == "image/png", out.Incomplete)
			if sum := sha256.Sum256(whole); out.SHA256 != hex.EncodeToString(sum[:]) ||
				out.SizeBytes != int64(len(whole)) {
				t.Errorf("it has %d bytes, want %d; hash %s", out.SizeBytes, len(whole), out.SHA256)
			}
			if c.mediaType != "image/png" {
				first := string([]rune(clean + strings.Repeat(clean, 200))[:6000])
				if want := first + "\n\n[... truncated: showing first 6000 of "; !strings.HasPrefix(shown, want) ||
					!strings.HasSuffix(shown, " chars]"+c.note) {
					t.Errorf("the model is shown %q", shown[len(first):])
				}
			}
		})
	}
}

// wholeText returns the text that is stored of a repeated text.
func wholeText(text, clean string, n int64, binary, cut bool) []byte {
	raw := strings.Repeat(text, int(n)/len(text)+1)[:n]
	if binary {
		return []byte(raw)
	}
	whole := strings.Repeat(clean, int(n)/len(text))
	rest := raw[int(n)/len(text)*len(text):]
	for cut && len(rest) > 0 && strings.HasSuffix(strings.ToValidUTF8(rest, "\uFFFD"), "\uFFFD") &&
		!strings.HasSuffix(rest, "\xfe") && !strings.HasSuffix(rest, "\xff") {
		rest = rest[:len(rest)-1]
	}
	return []byte(whole + strings.ReplaceAll(strings.ToValidUTF8(rest, "\uFFFD"), "\x00", ""))
}

// TestASmallResultIsNotWrittenEarly checks that a result that is small or shown whole is
// treated as if it had been received in one piece.
func TestASmallResultIsNotWrittenEarly(t *testing.T) {
	for name, c := range map[string]struct{ size, maxChars int }{
		"shown whole":                 {5000, 6000},
		"longer than what is shown":   {100_000, 6000},
		"large, and to be shown all":  {500_000, 1_000_000},
		"larger than a part, all too": {999_999, 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			d, text := &countedDraft{}, strings.Repeat("x", c.size)
			result, err := d.collect(t.Context(), c.maxChars, tools.Result{Body: strings.NewReader(text)})
			if err != nil || d.parts != 0 || result.Text != text || result.Kept != nil || result.Incomplete {
				t.Errorf("%v, %d parts, %d characters, %+v", err, d.parts, len(result.Text), result.Kept)
			}
		})
	}
}

// TestAStreamThatComesToNothing checks that the call's timeout ends a stream that blocks,
// that a stream that cannot be stored fails its call, and that the drafts of both are
// dropped.
func TestAStreamThatComesToNothing(t *testing.T) {
	boom := errors.New("the disk is full")
	begin := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		body  func() io.Reader
		fail  error
		says  string
		drops int
	}{
		"blocks": {func() io.Reader {
			r, _ := io.Pipe()
			return closing{io.MultiReader(strings.NewReader(begin), r), r}
		}, nil, "context deadline exceeded", 1},
		"gives nothing": {func() io.Reader {
			return io.MultiReader(strings.NewReader(begin), slowly{})
		}, nil, "context deadline exceeded", 1},
		"breaks off": {func() io.Reader {
			return io.MultiReader(strings.NewReader(begin), broken{boom})
		}, nil, "the result broke off after 1048576 bytes: the disk is full", 1},
		"cannot be kept": {func() io.Reader { return strings.NewReader(begin) }, boom, "the disk is full", 1},
		"breaks off soon": {func() io.Reader {
			return broken{boom}
		}, nil, "the result broke off after 0 bytes: the disk is full", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				d := &countedDraft{fail: c.fail}
				if _, err := d.collect(ctx, 6000, tools.Result{Body: c.body()}); err == nil || err.Error() != c.says {
					t.Errorf("error %v, want %s", err, c.says)
				}
				if d.dropped != c.drops {
					t.Errorf("dropped %d times", d.dropped)
				}
			})
		})
	}
}

type closing struct {
	io.Reader
	io.Closer
}

// slowly is a reader that returns no bytes, each time after a delay.
type slowly struct{}

func (slowly) Read([]byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return 0, nil
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
