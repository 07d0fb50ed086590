package program_test

import (
	"testing"
	"time"

	"turnkeeper/internal/testrun"
	"turnkeeper/tools/program"
	"turnkeeper/tools/program/programtest"
)

func TestMain(m *testing.M) {
	programtest.Main()
	program.SetKillTime(patience)
	testrun.Main(m)
}

// patience bounds every wait for an event: far above what any takes.
const patience = time.Minute
