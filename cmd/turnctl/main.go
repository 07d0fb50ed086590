// Command turnctl shows and changes what Turnkeeper does: turns, inbox, outbox,
// lanes, schedules, workers, the scheduler and the schema.
package main

import (
	"os"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
)

func main() {
	os.Exit(shell.Main(turnctl.Program()))
}
