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

// An MCPDefinition is what an MCP server says of one of its tools.
type Definition struct {
	Description string
	Schema      string // JSON Schema of the arguments, as canonical JSON
	// Hints of the server about what a call does. They are claims.
	ReadOnly   bool
	Idempotent bool
	// Hash is the hex SHA-256 of all of it and of the tool's name.
	Hash string
}

// An MCPTool is what is kept of a tool of an MCP server.
type Tool struct {
	Server string
	Name   string // the server's own
	// Pinned is the definition that was first seen, or that an operator has
	// accepted since.
	Pinned   Definition
	PinnedAt time.Time
	// Seen is what the server said last. Its hash is Pinned's unless the
	// definition has changed.
	Seen   Definition
	SeenAt time.Time
	// Gone says that the server did not list the tool any more when it was last
	// asked.
	Gone bool
}

// Changed says that the definition is not the pinned one.
func (t Tool) Changed() bool { return t.Pinned.Hash != t.Seen.Hash }

// An MCPLogin is what is kept of a person's login to an MCP server.
type Login struct {
	Server   string
	Revision int64    // grows with every change of it
	Sealed   []byte   // the tokens, for whoever has the key
	Scopes   []string // that were given, as far as that was told
	// Wanted are scopes that the server has asked for since, for the next login.
	Wanted []string
	// Expires is when the access token does. Zero: it was not told.
	Expires time.Time
	// Renewable says that the access token can be had anew without a person.
	Renewable  bool
	LoggedInAt time.Time
	RenewedAt  time.Time // zero: never
	// Lapsed says why the login does not hold any more. Empty: it does.
	Lapsed string
}

var (
	serverForm = regexp.MustCompile(`^[a-zA-Z0-9]([_-]?[a-zA-Z0-9])*$`)
	toolForm   = regexp.MustCompile(`^[^\s\x00-\x1f\x7f]{1,128}$`)
)

// CheckMCPServerName says what is wrong with the name that the settings give to
// an MCP server. It cannot hold two _ in a row, so that it can be told from the
// tool's in a name of both.
func CheckServerName(name string) error {
	if len(name) > 32 || !serverForm.MatchString(name) {
		return fmt.Errorf("the server's name %.100q: use 1 to 32 of a-z A-Z 0-9, with single _ or - between them", name)
	}
	return nil
}

// CheckMCPToolName says what is wrong with the name of a server's tool.
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

// MCPToolName is the name by which models know a tool of an MCP server:
// "server__tool". What models' names cannot hold becomes _, and a name that was
// changed by that, or that is longer than 64 characters, ends with a hash of the
// server's own, so that two tools never have the same name.
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
