package mcp_test

import (
	"os"
	"testing"
	"time"

	"turnkeeper/internal/testrun"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostileVariable) != "" {
		serveStdio()
		return
	}
	testrun.Main(m)
}

// patience bounds every wait for an event: far above what any takes.
const patience = time.Minute
