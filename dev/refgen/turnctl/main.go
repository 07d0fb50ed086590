// Command turnctl writes the reference of turnctl, docs/turnctl.md, from the commands
// of internal/cli/turnctl. "go generate ./internal/cli/turnctl" runs it, in the folder dev; a test of internal/cli
// fails while the file is out of date.
package main

import (
	"fmt"
	"os"

	"turnkeeper/internal/cli/turnctl"
)

const target = "../docs/turnctl.md"

func main() {
	if err := os.WriteFile(target, []byte(turnctl.Reference()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "refgen/turnctl:", err)
		os.Exit(1)
	}
}
