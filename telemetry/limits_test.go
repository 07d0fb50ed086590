package telemetry_test

import (
	"testing"

	"turnkeeper/internal/limittest"
)

// TestLimits names the test of each limit.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"shownChars":    {Test: "TestTextsOfSpansAreCut"},
		"shownMessages": {Test: "TestTextsOfSpansAreCut"},
		"reportEvery":   {Test: "TestErrorsOfTheReceiver"},
		"queueTime":     {Test: "TestTheDatabaseIsAskedSeldom"},
		"queueKept":     {Test: "TestTheDatabaseIsAskedSeldom"},
		"scrapeTime":    {Test: "TestABodyThatDoesNotComeToTheMetrics"},
		"scrapesOnce":   {Test: "TestReadsAtOnce"},
		"maxPairs":      {Test: "TestMetrics"},
		"FlushTime":     {Test: "TestCloseEndsInTime"},
	})
}
