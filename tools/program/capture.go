package program

import (
	"context"

	"turnkeeper/internal/membudget"
	"turnkeeper/internal/redact"
	"turnkeeper/tools"
)

// A head keeps the first room bytes of what is written and counts the rest. It waits for memory for
// what it keeps, and with it the program.
type head struct {
	ctx     context.Context
	memory  *membudget.Lease
	room    int
	kept    []byte
	dropped int64
}

func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.room-len(h.kept))
	if err := h.memory.GrowTo(h.ctx, 2*int64(len(h.kept)+n)); err != nil { // append and the result copy
		return 0, err
	}
	h.kept = append(h.kept, p[:n]...)
	h.dropped += int64(len(p) - n)
	return len(p), nil
}

// size returns the number of bytes written.
func (h *head) size() int64 { return int64(len(h.kept)) + h.dropped }

// start returns the first n bytes of what was written, with secrets masked.
func (h *head) start(call tools.Call, n int) string {
	text := string(h.kept[:min(len(h.kept), n+redact.Margin)])
	return call.Part(text, 0, min(len(text), n))
}

// A tail keeps the last room bytes of what is written.
type tail struct {
	room int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-t.room):]...)
	if over := len(t.kept) - t.room; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// end returns the last n bytes of what was written, with secrets masked.
func (t *tail) end(call tools.Call, n int) string {
	from := max(0, len(t.kept)-n)
	text := call.Part(string(t.kept), from, len(t.kept))
	if from > 0 {
		return "..." + text
	}
	return text
}
