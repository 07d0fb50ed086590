package journal_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// BenchmarkRound writes a round: an answer with two planned calls, then both results.
func BenchmarkRound(b *testing.B) {
	h := newEnv(b)
	const rounds = 3 // per turn
	var d *storagetest.Dispatch
	for n := 0; b.Loop(); n++ {
		round := n%rounds + 1
		if round == 1 {
			b.StopTimer()
			if d != nil {
				d.Finish(b, "done")
			}
			d = h.Turn("go")
			b.StartTimer()
		}
		d.Write(b, turnlog.Entry{
			Round: storagetest.Round(round, turnkeeper.EffectNone, turnkeeper.EffectNone),
			Events: storagetest.Events(turnkeeper.EventRoundStart, turnkeeper.EventToolStarted,
				turnkeeper.EventToolStarted),
		})
		d.Write(b, turnlog.Entry{
			Results: []turnlog.CallResult{
				storagetest.Result(storagetest.Key(round, 1), "", turnkeeper.CallSucceeded, "ok"),
				storagetest.Result(storagetest.Key(round, 2), "", turnkeeper.CallSucceeded, "ok"),
			},
			Events: storagetest.Events(turnkeeper.EventToolResult, turnkeeper.EventToolResult),
		})
	}
}
