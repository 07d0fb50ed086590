package mcp_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostileVariable) != "" {
		serveStdio()
		return
	}
	goleak.VerifyTestMain(m) // no test leaves a goroutine behind
}

// patience bounds every wait for an event: far above what any takes.
const patience = time.Minute
