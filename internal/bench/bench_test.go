package bench_test

import (
	"testing"
	"time"

	"turnkeeper/internal/bench"
)

// TestRun shows that the benchmark measures the turn it says: its figures are
// for whoever runs it.
func TestRun(t *testing.T) {
	report, err := bench.Run(t.Context(), bench.Options{Idle: 5, Turns: 10, Watched: 8, Lanes: []int{1, 2}, Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if report.FloorTxPerTurn < 6 || report.WriteTxPerTurn < 6 {
		t.Errorf("write transactions a turn: floor %.1f, turn %.1f; both are at least 6", report.FloorTxPerTurn, report.WriteTxPerTurn)
	}
	if len(report.Throughput) != 2 || report.Throughput[0].Turns <= 0 || report.Reply.P50 <= report.FirstRequest.P50 {
		t.Errorf("the report does not hold together: %+v", report)
	}
	if w := report.Watched; w.Events < 20 || w.Alone.P50 < 600*time.Millisecond || w.Watched.P50 < 600*time.Millisecond || w.Ratio <= 0 {
		t.Errorf("watched turns: %+v", w)
	}
	t.Logf("%+v", report)
}
