package term

import (
	"time"

	"turnkeeper/internal/words"
)

// A Clock formats times in a zone, relative to Now.
type Clock = words.Clock

// Coarse formats a duration in its largest unit.
func Coarse(d time.Duration) string { return words.Coarse(d) }

// Exact formats a duration with about three digits.
func Exact(d time.Duration) string { return words.Exact(d) }
