// Command worker runs agents' turns: it takes messages from their inboxes and
// writes replies to the outbox.
package main

import (
	"os"

	"turnkeeper/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Worker()))
}
