package journal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/storagetest"
)

const chunkBytes = outputs.ChunkBytes

// store stores an output as the result of a call of a new turn.
func (h *env) store(o turnkeeper.Output) turnkeeper.TurnID {
	h.T.Helper()
	d := h.Turn(string("with " + o.ID))
	r := storagetest.Round(1, turnkeeper.EffectNone)
	d.Write(h.T, turnlog.Entry{Round: r})
	read := storagetest.Result(r.Calls[0].Key, "", turnkeeper.CallSucceeded, "cut")
	o.Chars, o.SizeBytes = int64(utf8.RuneCountInString(o.Text)), int64(len(o.Text)+len(o.Bytes))
	read.Output = &o
	d.Write(h.T, turnlog.Entry{Results: []turnlog.CallResult{read}})
	d.Finish(h.T, "done")
	return d.Grant.TurnID
}

func (h *env) chunks(id string) int {
	h.T.Helper()
	return storagetest.One[int](h, "select count(*) from turnkeeper.output_chunks where output_id = $1", id)
}

// A text is read back unchanged wherever its chunks end. A text that fits in one chunk is stored
// without chunks.
func TestTextsInChunks(t *testing.T) {
	h := newEnv(t)
	for name, c := range map[string]struct {
		text   string
		chunks int
	}{
		"fits":             {strings.Repeat("x", chunkBytes), 0},
		"one-byte-more":    {strings.Repeat("x", chunkBytes+1), 2},
		"split-character":  {strings.Repeat("x", chunkBytes-1) + "é" + "z", 2},
		"emoji":            {"a" + strings.Repeat("👩‍👩‍👧‍👦", 10_000), 4},
		"combining-marks":  {strings.Repeat("e\u0301a\u0308\u0323", 30_000), 4},
		"CJK":              {"ab" + strings.Repeat("日本語", 20_000), 3},
		"right-to-left":    {strings.Repeat("שלום مرحبا ", 8000), 3},
		"exactly-two-full": {strings.Repeat("y", 2*chunkBytes), 2},
	} {
		turn := h.store(turnkeeper.Output{ID: turnkeeper.OutputID(name), Text: c.text, MediaType: "text/plain"})
		if got := h.chunks(name); got != c.chunks {
			t.Errorf("%s lies in %d chunks, want %d", name, got, c.chunks)
		}
		whole, err := h.Output(t.Context(), turnkeeper.OutputID(name))
		if err != nil || whole.Text != c.text || whole.Bytes != nil {
			t.Errorf("%s: %d bytes of %d, error %v", name, len(whole.Text), len(c.text), err)
		}
		chars := []rune(c.text)
		n := int64(len(chars))
		for _, from := range []int64{0, 1, n / 3, chunkBytes/4 - 1, chunkBytes/3 - 1, chunkBytes/2 - 2, chunkBytes - 1,
			chunkBytes, n - 1, n} {
			for _, take := range []int64{0, 1, 2, 7, chunkBytes, n} {
				from, to := min(from, n), min(from+take, n)
				got, err := h.ReadOutput(t.Context(), turn, turnkeeper.OutputID(name), from, to)
				if err != nil || got != string(chars[from:max(from, to)]) {
					t.Fatalf("%s from %d to %d: %d bytes %.20q, error %v", name, from, to, len(got), got, err)
				}
			}
		}
	}
}

func TestBinaryContentInChunks(t *testing.T) {
	h := newEnv(t)
	content := bytes.Repeat([]byte{0, 1, 2, 255, 254}, 50_000)
	turn := h.store(turnkeeper.Output{ID: "b", Bytes: content, MediaType: "image/png",
		Description: "[binary result: an image]"})
	whole, err := h.Output(t.Context(), "b")
	if err != nil || !bytes.Equal(whole.Bytes, content) || whole.Text != "" || h.chunks("b") != 4 {
		t.Errorf("%d bytes in %d chunks, error %v", len(whole.Bytes), h.chunks("b"), err)
	}
	if got, err := h.ReadOutput(t.Context(), turn, "b", 1, 7); err != nil || got != "binary" {
		t.Errorf("of its description: %q, error %v", got, err)
	}
}

// Large outputs that were written before the schema had chunks remain readable.
func TestOutputsFromBeforeChunks(t *testing.T) {
	h := newEnv(t)
	text := strings.Repeat("日本語", 100_000)
	turn := h.store(turnkeeper.Output{ID: "new", Text: text, MediaType: "text/plain"})
	h.Exec(
		`insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description)
		select 'old', turn_id, round, ordinal, media_type, $1, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description from turnkeeper.outputs`, text)
	for _, id := range []turnkeeper.OutputID{"old", "new"} {
		part, err := h.ReadOutput(t.Context(), turn, id, 250_001, 250_004)
		if err != nil || part != "語日本" {
			t.Errorf("%s: %q, error %v", id, part, err)
		}
		if whole, err := h.Output(t.Context(), id); err != nil || whole.Text != text {
			t.Errorf("%s: %d bytes, error %v", id, len(whole.Text), err)
		}
	}
}

// A part of a 10 MB text is read from only the chunks that contain it. A search reads the text part
// by part.
func TestAPartIsReadFromItsChunks(t *testing.T) {
	h := newFresh(t)
	noise := base64.StdEncoding.EncodeToString(randomBytes(turnkeeper.MaxOutputBytes * 3 / 4)) // hard to compress
	text := noise[:5_000_000] + "the needle in it" + noise[5_000_000:len(noise)-16]
	turn := h.store(turnkeeper.Output{ID: "large", Text: text, MediaType: "text/plain"})
	all := h.chunks("large")
	for name, c := range map[string]struct {
		from, take int64
		chunks     float64
		pages      int
	}{
		"in the middle":   {5_000_000, 6000, 1, 100},
		"over a border":   {chunkBytes*70 - 3000, 6000, 2, 150},
		"the end":         {int64(len(text)) - 1000, 6000, 1, 100},
		"a stride":        {3_000_000, 1 << 16, 2, 150},
		"the description": {0, 0, 0, 50},
		"all of it":       {0, turnkeeper.MaxOutputBytes, 1000, 10_000},
	} {
		plan := storagetest.ExplainWithin(h.DB, c.pages, bind(dbsqlc.ReadOutput, c.from, c.take, "large", turn))
		read := 0.0
		plan.Walk(func(n storagetest.Plan) {
			if n.Relation == "output_chunks" && n.Type != "Index Only Scan" {
				read += n.Rows * n.Loops
				if n.Type != "Index Scan" {
					t.Errorf("%s: a %s of the chunks", name, n.Type)
				}
			}
		})
		t.Logf("%s: %v of %d chunks, %d pages", name, read, all, plan.Pages())
		if read > c.chunks || plan.Pages() > c.pages {
			t.Errorf("%s: reads %v of %d chunks, %d pages", name, read, all, plan.Pages())
		}
	}
	source := &counted{h: h, turn: turn, chars: int64(len(text))}
	span, err := outputs.Slice(t.Context(), source, outputs.SliceRequest{Anchor: "needle in", Window: 8})
	if err != nil || span.Text != "the needle in it"+noise[5_000_000:5_000_001] {
		t.Errorf("%+v, error %v", span, err)
	}
	if source.most > 1<<17 || source.read > int64(len(text))*6/10 {
		t.Errorf("the search read %d characters, %d at once", source.read, source.most)
	}
}

// A counted is a Source for a stored text that counts the characters read.
type counted struct {
	h                 *env
	turn              turnkeeper.TurnID
	chars, read, most int64
}

func (c *counted) Chars() int64 { return c.chars }

func (c *counted) Read(ctx context.Context, from, to int64) (string, error) {
	text, err := c.h.ReadOutput(ctx, c.turn, "large", from, to)
	n := int64(utf8.RuneCountInString(text))
	c.read, c.most = c.read+n, max(c.most, n)
	return text, err
}

// bind returns a generated query with values in place of its parameters.
func bind(sql string, values ...any) string {
	for i, v := range values {
		if text, ok := v.(string); ok {
			v = "'" + text + "'"
		}
		sql = strings.ReplaceAll(sql, fmt.Sprint("$", i+1), fmt.Sprint(v))
	}
	return sql
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}
