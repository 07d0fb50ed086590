package turnlog

import (
	"crypto/sha256"
	"encoding/hex"

	"turnkeeper"
	"turnkeeper/policy"
)

// A RequestPart is a text that many requests share. It is stored once, by its hash.
type RequestPart struct {
	SHA256  string // hex
	Content string
}

// NewRequestPart returns the part with this content.
func NewRequestPart(content string) RequestPart {
	sum := sha256.Sum256([]byte(content))
	return RequestPart{SHA256: hex.EncodeToString(sum[:]), Content: content}
}

// A Summary replaces the beginning of a conversation, up to and including a turn.
// It never changes.
type Summary struct {
	UpTo turnkeeper.TurnID
	Text string

	// Labels are those of the turns in it. They are written with it, and read with the turn's.
	Labels []policy.Mark
}
