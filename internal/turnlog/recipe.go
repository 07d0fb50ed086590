package turnlog

import (
	"crypto/sha256"
	"encoding/hex"

	"turnkeeper"
)

// A RequestPart is text that many requests share. It is stored once, under its
// hash.
type RequestPart struct {
	SHA256  string // hex
	Content string
}

// NewRequestPart is the part with this content.
func NewRequestPart(content string) RequestPart {
	sum := sha256.Sum256([]byte(content))
	return RequestPart{SHA256: hex.EncodeToString(sum[:]), Content: content}
}

// A Summary stands for the beginning of a conversation, up to and with a turn.
// It never changes.
type Summary struct {
	UpTo turnkeeper.TurnID
	Text string
}
