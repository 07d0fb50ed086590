package turnlog

import (
	"time"

	"turnkeeper"
)

// An OutputPart is a part of a result that is written as it arrives.
type OutputPart struct {
	Output    turnkeeper.OutputID
	FirstChar int64  // position of the part; equal to FirstByte for binary content
	FirstByte int64  // 0: the first part
	Text      string // clean text of whole characters; empty for binary
	Bytes     []byte // binary; nil for text
}

// A PastCall is an ended call of an earlier turn.
type PastCall struct {
	Succeeded bool // false: failed
	Ago       time.Duration
}
