// Package redact takes secrets out of text on its way to a sink: logs, errors,
// events, records.
//
// A Masker knows the secret values of a process and finds them as they are and
// as URLs, JSON, Go quotes and base64 carry them. It also knows what looks like
// a secret: keys such as sk-..., what follows "Authorization: Bearer", and
// passwords in URLs. Each stretch of secret text, also one of several that
// overlap or touch, becomes [redacted].
//
// It is a net below the ones that should have caught the secret, not a proof:
// text that was encrypted, compressed, hashed or spelt out passes. The package
// imports nothing of this module and knows no settings.
package redact

import (
	"sync/atomic"
	"unicode/utf8"
)

// Placeholder stands where a secret stood.
const Placeholder = "[redacted]"

// MinLength is the length in characters below which a value is not masked:
// short words occur by chance, and masking them would make text unreadable and
// tell the secret by its gaps.
const MinLength = 6

// A Masker masks. It is safe for concurrent use. A nil Masker knows no values
// and still masks what looks like a secret.
type Masker struct {
	secrets  []string
	register *Register // nil: nothing comes to secrets
	current  atomic.Pointer[known]
}

// known is what a Masker finds, as of a version of its register.
type known struct {
	automaton *automaton
	version   int64
}

// New makes a masker of secret values. Values shorter than MinLength are
// ignored. A value that holds a bracket or is part of Placeholder may be seen
// again in what Placeholder makes together with the text beside it.
func New(secrets []string) *Masker { return NewWith(secrets, nil) }

// NewWith makes a masker of secret values, and of those that the register has and
// comes to have. A text that is masked in pieces is masked by what was known when
// it began.
func NewWith(secrets []string, register *Register) *Masker {
	m := &Masker{secrets: secrets, register: register}
	m.learn()
	return m
}

// learn takes over what the register has.
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

// String is s without secrets.
func (m *Masker) String(s string) string {
	if !m.finds(s) {
		return s
	}
	stream := m.Stream()
	return stream.Write(s) + stream.Flush()
}

// Bytes is b without secrets: b itself when there are none, else a copy.
func (m *Masker) Bytes(b []byte) []byte {
	if s := string(b); m.finds(s) {
		return []byte(m.String(s))
	}
	return b
}

// Error is err with a text without secrets: err itself when there are none.
// errors.Is and errors.As find what err wraps; whoever prints what they found,
// and not the error itself, prints it unmasked. Nil is nil.
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

// finds says that there is something to mask. It allocates nothing.
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
