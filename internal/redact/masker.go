// Package redact masks secrets in text on its way to a sink: logs, errors, events, records.
//
// A Masker finds the known secrets of a process, as they are and encoded for URLs, JSON, Go strings and
// base64. It also finds text that looks like a secret: keys such as sk-..., values after "Authorization:
// Bearer", and passwords in URLs. Each secret, and each run of overlapping or adjacent ones, becomes
// [redacted].
//
// It is a last line of defence, not a proof: encrypted, compressed, hashed or spelt-out secrets pass. The
// package imports no other package of the module.
package redact

import (
	"sync/atomic"
	"unicode/utf8"
)

// Placeholder replaces a secret.
const Placeholder = "[redacted]"

// MinLength is the length in characters below which a value is not masked: short words occur by chance,
// and masking them would make text unreadable and reveal the secret by its gaps.
const MinLength = 6

// A Masker masks secrets. It is safe for concurrent use. A nil Masker masks only text that looks like a
// secret.
type Masker struct {
	secrets  []string
	register *Register // nil: no secrets are added later
	current  atomic.Pointer[known]
}

// known holds the secrets of a Masker as of a version of its register.
type known struct {
	automaton *automaton
	version   int64
}

// New returns a masker of secret values. Values shorter than MinLength are ignored. A value that has a
// bracket or is part of Placeholder may occur again where Placeholder meets adjacent text.
func New(secrets []string) *Masker { return NewWith(secrets, nil) }

// NewWith returns a masker of secret values and of the register's present and future ones. A stream is
// masked with the secrets known when it began.
func NewWith(secrets []string, register *Register) *Masker {
	m := &Masker{secrets: secrets, register: register}
	m.learn()
	return m
}

// learn adds the secrets of the register.
func (m *Masker) learn() *known {
	next, all := &known{}, m.secrets
	if m.register != nil {
		values, version := m.register.all()
		all, next.version = append(values, all...), version
	}
	var patterns []string
	for _, secret := range all {
		if utf8.RuneCountInString(secret) >= MinLength {
			patterns = append(patterns, forms(secret)...)
		}
	}
	next.automaton = newAutomaton(patterns)
	m.current.Store(next)
	return next
}

// String returns s with secrets masked.
func (m *Masker) String(s string) string {
	if !m.finds(s) {
		return s
	}
	stream := m.Stream()
	return stream.Write(s) + stream.Flush()
}

// Bytes returns b itself if it has no secrets, else a masked copy.
func (m *Masker) Bytes(b []byte) []byte {
	if s := string(b); m.finds(s) {
		return []byte(m.String(s))
	}
	return b
}

// Error returns err itself if its text has no secrets, else an error with the masked text that wraps err.
// Errors found in it by errors.As print unmasked. Nil is nil.
func (m *Masker) Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	masked := m.String(text)
	if masked == text {
		return err
	}
	return &maskedError{text: masked, err: err}
}

type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }

// finds reports whether there is something to mask. It does not allocate.
func (m *Masker) finds(s string) bool {
	scan := m.scanner()
	if !scan.automaton.suspicious(s) {
		return false
	}
	for i := range len(s) {
		if scan.step(s[i]).from != none {
			return true
		}
	}
	return false
}

func (m *Masker) scanner() scanner {
	if m == nil {
		return newScanner(empty)
	}
	k := m.current.Load()
	if k == nil { // the zero value
		return newScanner(empty)
	}
	if m.register != nil && m.register.version.Load() != k.version {
		k = m.learn()
	}
	return newScanner(k.automaton)
}
