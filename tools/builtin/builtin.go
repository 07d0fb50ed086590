// Package builtin has the tools that come with Turnkeeper: a clock, files under
// an agent's root folder, HTTP reads, and an agent's own notes.
//
// Settings that differ from agent to agent are functions of the agent's name,
// asked on every call, so that a reloaded definition counts at once. All tools
// may be called by several goroutines at once. The package knows no database:
// notes are kept behind NoteStore.
package builtin

import (
	"time"

	"turnkeeper/internal/netguard"
	"turnkeeper/tools"
)

// Deps are what the tools need of the process they run in.
type Deps struct {
	// Now is the clock. nil: time.Now.
	Now func() time.Time
	// Root is the folder of an agent's files. nil, or an empty answer: the
	// agent has none, and the file tools say so.
	Root func(agent string) string
	// AllowPrivateHosts are the hosts, each as "host" or "host:port", that an
	// agent may reach by HTTP although their addresses are not public. nil:
	// none.
	AllowPrivateHosts func(agent string) []string
	// Own are the ports of this process, which no tool reaches by HTTP, whatever is
	// allowed. nil: there are none.
	Own *netguard.Listeners
	// Notes keeps the agents' notes. nil: there are no note tools.
	Notes NoteStore
}

// All are the built-in tools: clock, read_file, list_files, write_file, http_get,
// patch_output, get_continuation and get_tool_output, and with a NoteStore
// note_write and note_read.
func All(deps Deps) []tools.Tool {
	all := []tools.Tool{Clock(deps.Now)}
	all = append(all, NewFiles(deps.Root)...)
	all = append(all, NewHTTPGet(HTTPOptions{AllowPrivateHosts: deps.AllowPrivateHosts, Own: deps.Own}))
	all = append(all, NewPatchOutput())
	all = append(all, NewReaders()...)
	if deps.Notes != nil {
		all = append(all, NewNotes(deps.Notes)...)
	}
	return all
}

// failure is a result by which a tool says that it failed.
func failure(text string) tools.Result { return tools.Result{Text: text, IsError: true} }
