// Command refgen writes the reference of settings, docs/configuration.md, from
// the tables of internal/config and agentdef. It is run by go generate in
// internal/config; a test fails while the file is not what it would write.
package main

import (
	"fmt"
	"os"
)

const target = "../../docs/configuration.md"

func main() {
	if err := os.WriteFile(target, []byte(reference()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "refgen:", err)
		os.Exit(1)
	}
}
