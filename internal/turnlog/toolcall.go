package turnlog

import (
	"time"

	"turnkeeper"
)

// An OutputPart is a part of a result that is written while it comes.
type OutputPart struct {
	Output    turnkeeper.OutputID
	FirstChar int64  // where the part begins; in binary content, FirstByte again
	FirstByte int64  // 0: it is the first
	Text      string // clean text of whole characters; empty for binary
	Bytes     []byte // binary; nil for text
}

// A PastCall is an ended call of an earlier turn.
type PastCall struct {
	Succeeded bool // else failed
	Ago       time.Duration
}
