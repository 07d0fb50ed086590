package mcp

import (
	"context"
	"errors"
	"fmt"

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/membudget"
)

// MaxResultMemory is about the maximum number of bytes that the answer to a call takes while it is
// read and decoded: its text, two copies of that, and the values.
const MaxResultMemory = 3*maxFrame + maxDecoded

// maxDecoded is jsonlimit.MCPMessage.Memory.
const maxDecoded = 128 << 20

// An intake checks one message while it is read, before the SDK decodes it.
type intake struct {
	limits limits
	memory *membudget.Lease // of the message
	scan   *jsonlimit.Scanner
	size   int64
	large  *skimmer // the message is being dropped
	why    error    // which limit of jsonlimit it exceeds; nil: limits.Frame
}

func newIntake(limits limits, memory *membudget.Lease) *intake {
	return &intake{limits: limits, memory: memory, scan: jsonlimit.NewScanner(jsonlimit.MCPMessage.Limits)}
}

// feed checks a piece of the message, and waits for memory for it. It returns false if the message is
// beyond the limits: then the caller calls drop with all of it, and the rest goes to drop too.
func (m *intake) feed(ctx context.Context, piece []byte) (ok bool, err error) {
	m.size += int64(len(piece))
	why := m.scan.Feed(piece)
	if limit, ok := errors.AsType[*jsonlimit.LimitError](why); ok {
		m.why = limit
		return false, nil
	}
	return true, m.memory.GrowTo(ctx, m.need())
}

// need is the memory that the message takes.
func (m *intake) need() int64 { return 3*m.size + m.scan.Size().Memory }

// drop takes a part of a message that is dropped.
func (m *intake) drop(piece []byte) error {
	if m.large == nil {
		m.large = &skimmer{}
		m.memory.Shrink(0)
	}
	if m.large.feed(piece); m.large.size > m.limits.Drop {
		return errFrame
	}
	return nil
}

// replacement returns the error response that replaces a dropped message, or an error if that is no
// answer.
func (m *intake) replacement() ([]byte, error) {
	line := m.large.replacement(m.why)
	switch {
	case line != nil:
		return line, nil
	case m.why != nil:
		return nil, &badOutput{"it sent a message that is not taken: " + m.why.Error()}
	}
	return nil, errFrame
}

// end checks a whole message. isJSON is false for a text that no decoder should get.
func (m *intake) end(text []byte) (isJSON bool, err error) {
	isJSON = m.scan.End() == nil
	requests := jsonlimit.MCPRequest.Values
	if !isJSON || m.scan.Size().Values <= requests {
		return isJSON, nil
	}
	s := &skimmer{}
	if s.feed(text); s.method || len(s.id) == 0 { // a batch has no id
		return true, &badOutput{fmt.Sprintf("it sent a request, notification or batch of more than %d JSON values",
			requests)}
	}
	return true, nil
}
