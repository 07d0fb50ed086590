package cli_test

import (
	"os"
	"syscall"
	"testing"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/storage/storagetest"
)

// asTurnctl names the variable that makes the test binary run turnctl.
const asTurnctl = "CLI_TEST_AS_TURNCTL"

func TestMain(m *testing.M) {
	if _, set := syscall.Getenv(asTurnctl); set { // not os.Getenv: go test would record it as an input
		allowCores()
		os.Exit(shell.Main(turnctl.Program()))
	}
	storagetest.Main(m)
}
