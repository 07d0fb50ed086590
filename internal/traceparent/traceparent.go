// Package traceparent reads and writes the W3C traceparent, and names the spans of a turn. It does no I/O.
package traceparent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"turnkeeper"
)

// A Context is the place of a turn in a distributed trace, in the terms of W3C Trace Context. It is
// computed from stored data, so every process that works on the turn gets the same.
type Context struct {
	TraceID [16]byte
	// Sender is the span that sent the turn's message, and Sampled its sampling decision. Sender
	// is zero if the message has no trace context: the turn is then a new trace.
	Sender  [8]byte
	Sampled bool
}

// Of returns the trace of a turn: its sender's if traceParent is valid, or else a new one, made from
// the turn's id and its time of creation.
func Of(t turnkeeper.Turn, traceParent string) Context {
	if c, ok := Parse(traceParent); ok {
		return c
	}
	var c Context
	sum := sha256.Sum256(fmt.Appendf(nil, "turnkeeper turn %d made at %d", t.ID, t.CreatedAt.UnixMicro()))
	copy(c.TraceID[:], sum[:])
	return c
}

// String returns the trace id in hexadecimal.
func (c Context) String() string { return hex.EncodeToString(c.TraceID[:]) }

// HasSender reports whether the turn continues the trace of its message's sender.
func (c Context) HasSender() bool { return c.Sender != [8]byte{} }

// SpanOf returns the id of a span that several processes refer to. what names it: see TurnSpan,
// GrantSpan and CallSpan.
func (c Context) SpanOf(what string) (id [8]byte) {
	sum := sha256.Sum256(append(c.TraceID[:], what...))
	copy(id[:], sum[:])
	return id
}

// TurnSpan names the span of a whole turn, for SpanOf.
func TurnSpan(id turnkeeper.TurnID) string { return fmt.Sprintf("turn %d", id) }

// GrantSpan names the span of one grant, for SpanOf.
func GrantSpan(id turnkeeper.GrantID) string { return "grant " + string(id) }

// CallSpan names the span of an awaited call, for SpanOf.
func CallSpan(id turnkeeper.TurnID, call turnkeeper.CallKey) string {
	return fmt.Sprintf("turn %d %s", id, call)
}

// Below returns the traceparent for a child of a span of the trace.
func (c Context) Below(span [8]byte, sampled bool) string {
	flags := 0
	if sampled {
		flags = 1
	}
	return fmt.Sprintf("00-%x-%x-%02x", c.TraceID, span, flags)
}

// Parse parses a traceparent of W3C Trace Context, version 00 or later. ok is false if it is invalid.
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
