// Command enqueue puts a message into an agent's inbox and, if asked, waits for
// the reply.
package main

import (
	"os"

	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
)

func main() {
	os.Exit(shell.Main(enqueue.Program()))
}
