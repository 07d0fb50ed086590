package program_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"turnkeeper/tools/program/programtest"
)

func TestMain(m *testing.M) {
	programtest.Main()
	goleak.VerifyTestMain(m) // no test leaves a goroutine behind
}

// patience bounds every wait for an event: far above what any takes.
const patience = 20 * time.Second
