// Command misbehaving is a program that misbehaves, in the way that its first argument
// says. Its second is a token to find its processes by.
package main

import (
	"os"

	"turnkeeper/tools/program/programtest"
)

func main() {
	_ = os.Setenv(programtest.Variable, "yes")
	programtest.Main()
}
