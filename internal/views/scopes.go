package views

// The scopes of a token.
const (
	ScopeSend    = "send"    // send messages and read them with their replies
	ScopeRead    = "read"    // read everything
	ScopeOperate = "operate" // cancel, retry, pause and resume
)

// Scopes lists all scopes.
func Scopes() []string { return []string{ScopeSend, ScopeRead, ScopeOperate} }
