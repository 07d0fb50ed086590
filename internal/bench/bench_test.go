package bench_test

import (
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/bench"
	"turnkeeper/internal/testrun"
)

// The benchmark measures the standard turn, and every commit waits for the flush delay: a turn of
// the floor has six commits, one after the other.
func TestRun(t *testing.T) {
	testrun.Slow(t)
	const delay = 5 * time.Millisecond
	report, err := bench.Run(t.Context(), bench.Options{
		Idle: 2, Turns: 4, Watched: 1, Lanes: []int{1, 2}, Pause: time.Millisecond, FlushDelay: delay,
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.FloorTxPerTurn < 6 || report.PlainTxPerTurn < 6 || report.WriteTxPerTurn < 6 {
		t.Errorf("write transactions per turn: floor %.1f, plain job %.1f, turn %.1f; want at least 6 each",
			report.FloorTxPerTurn, report.PlainTxPerTurn, report.WriteTxPerTurn)
	}
	if report.Flush <= 0 || report.PlainReply.P50 <= 0 || report.PlainRatio <= 0 {
		t.Errorf("no flush time or no plain job in the report: %+v", report)
	}
	if len(report.Throughput) != 2 || report.Throughput[0].Turns <= 0 || report.Reply.P50 <= report.FirstRequest.P50 {
		t.Errorf("inconsistent report: %+v", report)
	}
	if w := report.Watched; w.Events < 20 || w.Alone.P50 < 600*time.Millisecond || w.Watched.P50 < 600*time.Millisecond || w.Ratio <= 0 {
		t.Errorf("watched turns: %+v", w)
	}
	if report.FloorReply.P50 < 6*delay || report.FlushDelay != delay {
		t.Errorf("six commits took %v with flushes slower by %v (%v in the report)", report.FloorReply.P50, delay, report.FlushDelay)
	}
}

func TestFlushDelayBounds(t *testing.T) {
	for _, delay := range []time.Duration{-time.Millisecond, 101 * time.Millisecond} {
		_, err := bench.Run(t.Context(), bench.Options{FlushDelay: delay})
		if err == nil || !strings.Contains(err.Error(), "0 to 100ms slower") {
			t.Errorf("a delay of %v: %v", delay, err)
		}
	}
}
