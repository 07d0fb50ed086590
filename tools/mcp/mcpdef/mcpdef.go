// Package mcpdef holds what is stored of an MCP server's tools and logins, and the rules of their names. It
// does no I/O, and does not import the MCP SDK.
package mcpdef

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"
)

// A Definition is a tool as its MCP server describes it.
type Definition struct {
	Description string
	Schema      string // JSON Schema of the arguments, as canonical JSON
	// Hints of the server about the effect of a call. They are not verified.
	ReadOnly   bool
	Idempotent bool
	// Hash is the hex SHA-256 of the definition and the tool's name.
	Hash string
}

// A Tool is the stored state of a tool of an MCP server.
type Tool struct {
	Server string
	Name   string // the server's name for it
	// Pinned is the definition that was first seen, or that an operator accepted
	// later.
	Pinned   Definition
	PinnedAt time.Time
	// Seen is the newest definition. Its hash differs from that of Pinned if the
	// definition changed.
	Seen   Definition
	SeenAt time.Time
	// Gone reports that the newest list of the server lacks the tool.
	Gone bool
}

// Changed reports whether the newest definition differs from the pinned one.
func (t Tool) Changed() bool { return t.Pinned.Hash != t.Seen.Hash }

// A Login is the stored state of a person's login to an MCP server.
type Login struct {
	Server   string
	Revision int64    // incremented by each change
	Sealed   []byte   // the encrypted tokens
	Scopes   []string // granted scopes, if the server reported them
	// Wanted are scopes that the server asked for since, for the next login.
	Wanted []string
	// Expires is when the access token expires. Zero: unknown.
	Expires time.Time
	// Renewable reports whether the access token can be renewed without a person.
	Renewable  bool
	LoggedInAt time.Time
	RenewedAt  time.Time // zero: never
	// Lapsed is why the login is no longer valid. Empty: it is valid.
	Lapsed string
}

var (
	serverForm = regexp.MustCompile(`^[a-zA-Z0-9]([_-]?[a-zA-Z0-9])*$`)
	toolForm   = regexp.MustCompile(`^[^\s\x00-\x1f\x7f]{1,128}$`)
)

// CheckServerName returns an error if the settings' name of an MCP server is invalid. It must not
// contain two _ in a row, which separate it from the tool's name in ToolName.
func CheckServerName(name string) error {
	if len(name) > 32 || !serverForm.MatchString(name) {
		return fmt.Errorf("the server's name %.100q: use 1 to 32 of a-z A-Z 0-9, with single _ or - between them", name)
	}
	return nil
}

// CheckToolName returns an error if a server's name of a tool is invalid.
func CheckToolName(name string) error {
	if !utf8.ValidString(name) || !toolForm.MatchString(name) {
		return fmt.Errorf("the tool's name %.200q: it must be 1 to 128 characters without spaces", name)
	}
	return nil
}

const (
	maxToolName   = 64
	toolHashChars = 8
)

var notInToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// ToolName returns the name of an MCP server's tool for models: "server__tool". Characters that model
// APIs do not allow become _. A name that was changed so, or that exceeds 64 characters, ends with a hash
// of the full name, so two tools never have the same name.
func ToolName(server, tool string) string {
	whole := server + "__" + tool
	name := notInToolName.ReplaceAllString(whole, "_")
	if name == whole && len(name) <= maxToolName {
		return name
	}
	sum := sha256.Sum256([]byte(whole))
	tail := "-" + hex.EncodeToString(sum[:])[:toolHashChars]
	return name[:min(len(name), maxToolName-len(tail))] + tail
}
