package bench_test

import (
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/bench"
	"turnkeeper/internal/testrun"
)

// TestRun shows that the benchmark measures the turn that it says, and that every commit waits for
// the flush that was asked for: the floor's turn has six, one after the other.
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
		t.Errorf("write transactions a turn: floor %.1f, plain job %.1f, turn %.1f; all are at least 6",
			report.FloorTxPerTurn, report.PlainTxPerTurn, report.WriteTxPerTurn)
	}
	if report.Flush <= 0 || report.PlainReply.P50 <= 0 || report.PlainRatio <= 0 {
		t.Errorf("the report lacks the disk's flush, or the plain job: %+v", report)
	}
	if len(report.Throughput) != 2 || report.Throughput[0].Turns <= 0 || report.Reply.P50 <= report.FirstRequest.P50 {
		t.Errorf("the report does not hold together: %+v", report)
	}
	if w := report.Watched; w.Events < 20 || w.Alone.P50 < 600*time.Millisecond || w.Watched.P50 < 600*time.Millisecond || w.Ratio <= 0 {
		t.Errorf("watched turns: %+v", w)
	}
	if report.FloorReply.P50 < 6*delay || report.FlushDelay != delay {
		t.Errorf("six commits took %v with flushes slower by %v (%v in the report)", report.FloorReply.P50, delay, report.FlushDelay)
	}
}

func TestFlushesCannotBeSlowerThanPostgresLetsThem(t *testing.T) {
	for _, delay := range []time.Duration{-time.Millisecond, 101 * time.Millisecond} {
		_, err := bench.Run(t.Context(), bench.Options{FlushDelay: delay})
		if err == nil || !strings.Contains(err.Error(), "0 to 100ms slower") {
			t.Errorf("a delay of %v: %v", delay, err)
		}
	}
}
