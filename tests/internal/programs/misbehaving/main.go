// Command misbehaving is a program that misbehaves as its first argument says. Its second argument is
// a token that identifies its processes.
package main

import (
	"os"

	"turnkeeper/tools/program/programtest"
)

func main() {
	_ = os.Setenv(programtest.Variable, "yes")
	programtest.Main()
}
