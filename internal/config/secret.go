package config

import (
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// A Secret is text that prints as [redacted] everywhere: by every verb of
// fmt, as JSON, as text, by slog and by zap. The zero value is no secret, and
// prints as nothing.
type Secret struct {
	value *string // a pointer, so that a struct around it shows an address at most
}

// NewSecret holds the value. Empty: no secret.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal is the value itself; empty when there is none.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsSet says that there is a value.
func (s Secret) IsSet() bool { return s.value != nil }

// Equal compares the values.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

// String is [redacted], or empty when there is no value.
func (s Secret) String() string {
	if s.value == nil {
		return ""
	}
	return redacted
}

// GoString is as String.
func (s Secret) GoString() string { return s.String() }

// Format prints String, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText gives String. It also serves encoding/json.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON gives String in quotes.
func (s Secret) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", s.String()), nil }

// LogValue gives String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
