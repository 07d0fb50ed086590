package outputs

import (
	"crypto/rand"
	"strings"

	"turnkeeper"
)

// NewID returns a random id of twelve lowercase letters and digits (60 bits), which is short
// enough for a model to repeat.
func NewID() turnkeeper.OutputID {
	return turnkeeper.OutputID(strings.ToLower(rand.Text()[:12]))
}
