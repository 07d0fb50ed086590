package config

import (
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// A Secret is a text that prints as [redacted] with every verb of fmt, as JSON, as text, in slog and in
// zap. The zero value is no secret, and prints as nothing.
type Secret struct {
	value *string // a pointer: printing a surrounding struct shows an address at most
}

// NewSecret returns a Secret; the zero value if value is empty.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal returns the value; empty if there is none.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsSet reports whether there is a value.
func (s Secret) IsSet() bool { return s.value != nil }

// Equal compares the values.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

// String returns [redacted], or "" if there is no value.
func (s Secret) String() string {
	if s.value == nil {
		return ""
	}
	return redacted
}

// GoString returns String.
func (s Secret) GoString() string { return s.String() }

// Format prints String with any verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText returns String. encoding/json uses it too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns String in quotes.
func (s Secret) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", s.String()), nil }

// LogValue returns String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
