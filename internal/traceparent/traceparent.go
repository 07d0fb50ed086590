// Package traceparent reads and writes the W3C traceparent, and names the spans of a turn. It does no I/O.
package traceparent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"turnkeeper"
)

// A TraceContext is where a turn stands in a distributed trace, in the W3C's
// terms. It follows from what the database keeps, so that every process that has
// a part in the turn finds the same.
type Context struct {
	TraceID [16]byte
	// Sender is the span that the turn's message was sent from, and Sampled says
	// what the sender decided. Sender is zero where the message brought none: then
	// the turn is a trace of its own.
	Sender  [8]byte
	Sampled bool
}

// TraceOf is the turn's place in a trace: that of its message's sender, or else one
// of its own, made of the turn's id and the microsecond it was made in.
func Of(t turnkeeper.Turn, traceParent string) Context {
	if c, ok := Parse(traceParent); ok {
		return c
	}
	var c Context
	sum := sha256.Sum256(fmt.Appendf(nil, "turnkeeper turn %d made at %d", t.ID, t.CreatedAt.UnixMicro()))
	copy(c.TraceID[:], sum[:])
	return c
}

// String is the trace id in hexadecimal, as logs and tools for traces show it.
func (c Context) String() string { return hex.EncodeToString(c.TraceID[:]) }

// HasSender says that the turn goes on with a trace of its message's sender.
func (c Context) HasSender() bool { return c.Sender != [8]byte{} }

// SpanOf is the id of a span of the trace which more than one process speaks of:
// that of the turn, or of one grant of it.
func (c Context) SpanOf(what string) (id [8]byte) {
	sum := sha256.Sum256(append(c.TraceID[:], what...))
	copy(id[:], sum[:])
	return id
}

// TurnSpan names the span of a whole turn, for SpanOf.
func TurnSpan(id turnkeeper.TurnID) string { return fmt.Sprintf("turn %d", id) }

// GrantSpan names the span of one grant, for SpanOf.
func GrantSpan(id turnkeeper.GrantID) string { return "grant " + string(id) }

// CallSpan names the span of a call whose result comes from elsewhere, for SpanOf.
func CallSpan(id turnkeeper.TurnID, call turnkeeper.CallKey) string {
	return fmt.Sprintf("turn %d %s", id, call)
}

// Below is the traceparent of what hangs below a span of the trace.
func (c Context) Below(span [8]byte, sampled bool) string {
	flags := 0
	if sampled {
		flags = 1
	}
	return fmt.Sprintf("00-%x-%x-%02x", c.TraceID, span, flags)
}

// ParseTraceParent reads a traceparent of the W3C's Trace Context, of version 00
// or later. What is none is not ok.
func Parse(text string) (c Context, ok bool) {
	const length = len("00-00000000000000000000000000000000-0000000000000000-00")
	if len(text) < length || text != strings.ToLower(text) {
		return c, false
	}
	head, more := text[:length], text[length:]
	var version, flags [1]byte
	ok = head[2] == '-' && head[35] == '-' && head[52] == '-' &&
		decodeHex(version[:], head[:2]) && decodeHex(c.TraceID[:], head[3:35]) &&
		decodeHex(c.Sender[:], head[36:52]) && decodeHex(flags[:], head[53:]) &&
		version[0] != 0xff && (more == "" || version[0] > 0 && more[0] == '-') &&
		c.TraceID != [16]byte{} && c.HasSender()
	if !ok {
		return Context{}, false
	}
	c.Sampled = flags[0]&1 == 1
	return c, true
}

func decodeHex(into []byte, text string) bool {
	n, err := hex.Decode(into, []byte(text))
	return err == nil && n == len(into)
}
