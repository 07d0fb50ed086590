package turnkeeper

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// A TraceContext is where a turn stands in a distributed trace, in the W3C's
// terms. It follows from what the database keeps, so that every process that has
// a part in the turn finds the same.
type TraceContext struct {
	TraceID [16]byte
	// Sender is the span that the turn's message was sent from, and Sampled says
	// what the sender decided. Sender is zero where the message brought none: then
	// the turn is a trace of its own.
	Sender  [8]byte
	Sampled bool
}

// TraceOf is the turn's place in a trace: that of its message's sender, or else one
// of its own, made of the turn's id and the microsecond it was made in.
func TraceOf(t Turn, traceParent string) TraceContext {
	if c, ok := ParseTraceParent(traceParent); ok {
		return c
	}
	var c TraceContext
	sum := sha256.Sum256(fmt.Appendf(nil, "turnkeeper turn %d made at %d", t.ID, t.CreatedAt.UnixMicro()))
	copy(c.TraceID[:], sum[:])
	return c
}

// String is the trace id in hexadecimal, as logs and tools for traces show it.
func (c TraceContext) String() string { return hex.EncodeToString(c.TraceID[:]) }

// HasSender says that the turn goes on with a trace of its message's sender.
func (c TraceContext) HasSender() bool { return c.Sender != [8]byte{} }

// SpanOf is the id of a span of the trace which more than one process speaks of:
// that of the turn, or of one grant of it.
func (c TraceContext) SpanOf(what string) (id [8]byte) {
	sum := sha256.Sum256(append(c.TraceID[:], what...))
	copy(id[:], sum[:])
	return id
}

// TurnSpan names the span of a whole turn, for SpanOf.
func TurnSpan(id TurnID) string { return fmt.Sprintf("turn %d", id) }

// GrantSpan names the span of one grant, for SpanOf.
func GrantSpan(id GrantID) string { return "grant " + string(id) }

// CallSpan names the span of a call whose result comes from elsewhere, for SpanOf.
func CallSpan(id TurnID, call CallKey) string { return fmt.Sprintf("turn %d %s", id, call) }

// Below is the traceparent of what hangs below a span of the trace.
func (c TraceContext) Below(span [8]byte, sampled bool) string {
	flags := 0
	if sampled {
		flags = 1
	}
	return fmt.Sprintf("00-%x-%x-%02x", c.TraceID, span, flags)
}

// ParseTraceParent reads a traceparent of the W3C's Trace Context, of version 00
// or later. What is none is not ok.
func ParseTraceParent(text string) (c TraceContext, ok bool) {
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
		return TraceContext{}, false
	}
	c.Sampled = flags[0]&1 == 1
	return c, true
}

func decodeHex(into []byte, text string) bool {
	n, err := hex.Decode(into, []byte(text))
	return err == nil && n == len(into)
}
