// Command turnctl shows and changes what Turnkeeper does: turns, inbox, outbox,
// lanes, schedules, workers, the scheduler and the schema.
package main

import (
	"os"

	"turnkeeper/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Turnctl()))
}
