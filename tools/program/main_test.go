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

// patience is the timeout of every wait for an event, far longer than any wait
// takes.
const patience = time.Minute
