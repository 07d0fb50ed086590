package responses_test

import (
	"testing"

	"turnkeeper/internal/testrun"
)

// No test leaves a goroutine behind.
func TestMain(m *testing.M) { testrun.Main(m) }
