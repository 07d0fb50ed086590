// Package builtin provides the tools that come with Turnkeeper: a clock, files in
// an agent's root folder, HTTP reads, stored results, and an agent's notes.
//
// Settings of an agent are functions of its name. They are called on every call of
// a tool, so a reloaded definition takes effect at once. All tools are safe for
// concurrent use. The package imports no database: a NoteStore stores the notes.
package builtin

import (
	"time"

	"turnkeeper/internal/netguard"
	"turnkeeper/tools"
)

// Deps are the dependencies of the tools.
type Deps struct {
	// Now is the clock. nil: time.Now.
	Now func() time.Time
	// Root returns the root folder of an agent's files. nil or "": the agent has
	// none, and the file tools return an error.
	Root func(agent string) string
	// AllowPrivateHosts returns the hosts, as "host" or "host:port", that an agent
	// may reach by HTTP although their addresses are not public. nil: none.
	AllowPrivateHosts func(agent string) []string
	// Own are the ports of this process. They are refused by HTTP even for an
	// allowed host. nil: there are none.
	Own *netguard.Listeners
	// Files keeps the labels of files that agents write. nil: they are not kept.
	Files FileStore
	// Notes stores the agents' notes. nil: there are no note tools.
	Notes NoteStore
}

// All returns the built-in tools: clock, read_file, list_files, write_file,
// http_get, patch_output, ask_person, get_continuation, get_tool_output and
// wait_for_tool_output, and with a NoteStore note_write and note_read.
func All(deps Deps) []tools.Tool {
	all := []tools.Tool{Clock(deps.Now)}
	all = append(all, NewFiles(deps.Root, deps.Files)...)
	all = append(all, NewHTTPGet(HTTPOptions{AllowPrivateHosts: deps.AllowPrivateHosts, Own: deps.Own}))
	all = append(all, NewPatchOutput(), NewAskPerson())
	all = append(all, NewReaders()...)
	if deps.Notes != nil {
		all = append(all, NewNotes(deps.Notes)...)
	}
	return all
}

// Known returns all built-in tools for their names and schemas: some cannot be run.
func Known() []tools.Tool { return append(All(Deps{}), NewNotes(nil)...) }

// failure returns a result with IsError.
func failure(text string) tools.Result { return tools.Result{Text: text, IsError: true} }
