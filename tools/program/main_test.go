package program_test

import (
	"os"
	"testing"
	"time"
)

// rascalVariable makes this test binary a program that misbehaves.
const rascalVariable = "RASCAL"

func TestMain(m *testing.M) {
	if os.Getenv(rascalVariable) != "" {
		beRascal()
	}
	os.Exit(m.Run())
}

// patience bounds every wait for an event: far above what any takes.
const patience = 20 * time.Second
