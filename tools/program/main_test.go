package program_test

import (
	"os"
	"testing"
	"time"

	"turnkeeper/tools/program/programtest"
)

func TestMain(m *testing.M) {
	programtest.Main()
	os.Exit(m.Run())
}

// patience bounds every wait for an event: far above what any takes.
const patience = 20 * time.Second
