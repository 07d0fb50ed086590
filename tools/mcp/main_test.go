package mcp_test

import (
	"os"
	"testing"
	"time"

	"turnkeeper/internal/testrun"
)

func TestMain(m *testing.M) {
	if os.Getenv(bulkVariable) != "" {
		serveBulk()
		return
	}
	if os.Getenv(hostileVariable) != "" {
		serveStdio()
		return
	}
	testrun.Main(m)
}

// patience is the timeout of every wait for an event, far longer than any wait
// takes.
const patience = time.Minute
