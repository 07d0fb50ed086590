// Package worker is the worker program with your own tools. A tool is a Go value,
// so a worker with more than the built-in tools is a separate program, with a main
// of one line:
//
//	func main() { worker.Main(tools.Func(spec, run)) }
//
// It takes the same flags, variables and config file as the command worker,
// and can share a database with it. Every worker of a database should have all
// tools that its agents list: a worker refuses to start if it lacks a listed tool.
package worker

import (
	"os"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/tools"
)

// Main runs the worker program as this process, with more tools than the built-in
// ones. It does not return: it ends the process with the program's exit code. An
// agent has only the tools that its file lists.
//
// Tools must be safe for concurrent use. Two tools of one name, or a tool with an
// invalid Spec, are errors at the start.
func Main(more ...tools.Tool) { os.Exit(shell.Main(worker.Program(more...))) }
