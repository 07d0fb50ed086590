package views

// The scopes of a token.
const (
	ScopeSend    = "send"    // put messages into inboxes, and read what became of them
	ScopeRead    = "read"    // read all that there is
	ScopeOperate = "operate" // change what runs
)

// Scopes are all scopes.
func Scopes() []string { return []string{ScopeSend, ScopeRead, ScopeOperate} }
