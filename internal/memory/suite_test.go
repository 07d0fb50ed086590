package memory_test

import (
	"testing"

	"turnkeeper/internal/memory/memorytest"
	"turnkeeper/internal/storesuite"
	"turnkeeper/internal/testrun"
)

func TestSuite(t *testing.T) { storesuite.Run(t, memorytest.Open) }

// TestBlockers checks that a tick grants what has no blocker.
func TestBlockers(t *testing.T) { storesuite.Walks(t, memorytest.Open, testrun.Count(100, 1000), 80) }
