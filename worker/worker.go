// Package worker is the worker program with a caller's own tools in it. A tool
// is a Go value, so a worker that has more than the built-in tools is a program
// of its own, with a main of one line:
//
//	func main() { worker.Main(tools.Func(spec, run)) }
//
// It takes the same flags, variables and config file as the command worker,
// and works beside it on the same database. Every worker of a database should
// have the tools that its agents list: one that lacks a tool refuses to start
// with an agent that lists it.
package worker

import (
	"os"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/tools"
)

// Main runs the worker program as this process, with more tools beside the
// built-in ones, and does not return: it ends the process with the program's
// exit code. An agent has the tools that its file lists and no others.
//
// Tools may be called by several goroutines at once. Two tools of one name, or
// a tool whose Spec is faulty, are reported at the start, before any work is
// taken.
func Main(more ...tools.Tool) { os.Exit(shell.Main(worker.Program(more...))) }
