// Command config writes the reference of settings, docs/configuration.md, from the tables in
// internal/config and agentdef. "go generate ./internal/config"
// runs it, in the folder dev; a test fails while the file is out of date.
package main

import (
	"fmt"
	"os"
)

const target = "../docs/configuration.md"

func main() {
	if err := os.WriteFile(target, []byte(reference()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "refgen/config:", err)
		os.Exit(1)
	}
}
