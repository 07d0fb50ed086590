// Command faultenqueue is the command enqueue with fault points.
package main

import (
	"os"

	"turnkeeper/internal/cli"
	"turnkeeper/tests/internal/faultpoint"
)

func main() { os.Exit(cli.Main(cli.Enqueue().WithFaults(faultpoint.Hook()))) }
