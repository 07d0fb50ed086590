// Command faultenqueue is the command enqueue with fault points.
package main

import (
	"os"

	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/tests/internal/faultpoint"
)

func main() { os.Exit(shell.Main(enqueue.Program().WithFaults(faultpoint.Hook()))) }
