// Command enqueue puts a message into an agent's inbox and, if asked, waits for
// the reply.
package main

import (
	"os"

	"turnkeeper/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Enqueue()))
}
