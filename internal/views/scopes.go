package views

import "slices"

// The scopes of a token.
const (
	ScopeSend    = "send"    // send messages and read them with their replies
	ScopeRead    = "read"    // read everything
	ScopeOperate = "operate" // cancel, retry, pause and resume
	ScopeAnswer  = "answer"  // read and answer asks; never together with send
)

// Scopes lists all scopes.
func Scopes() []string { return []string{ScopeSend, ScopeRead, ScopeOperate, ScopeAnswer} }

// CanCombine reports whether one token may have the scopes: who sends messages must not answer what their turns ask.
func CanCombine(scopes []string) bool {
	return !slices.Contains(scopes, ScopeSend) || !slices.Contains(scopes, ScopeAnswer)
}
