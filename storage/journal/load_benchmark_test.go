package journal_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// BenchmarkLoad loads a turn after 40 earlier turns of three rounds with four calls.
func BenchmarkLoad(b *testing.B) {
	h := newEnv(b)
	shown := strings.Repeat("0123456789", 20)
	write := func(d *storagetest.Dispatch, e turnlog.Entry) {
		e.Round.Reasoning = strings.Repeat("hm ", 200)
		e.Round.Recipe = &turnkeeper.Recipe{Version: 1, Provider: "script", Model: "m", SHA256: strings.Repeat("b", 64)}
		d.Write(b, e)
	}
	results := func(round int) []turnlog.CallResult {
		return []turnlog.CallResult{
			storagetest.Result(storagetest.Key(round, 1), "", turnkeeper.CallSucceeded, shown),
			storagetest.Result(storagetest.Key(round, 2), "", turnkeeper.CallSucceeded, shown),
		}
	}
	for range 40 {
		d := h.Turn("message")
		write(d, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectNone)})
		write(d, turnlog.Entry{Round: storagetest.Round(2, turnkeeper.EffectNone, turnkeeper.EffectNone),
			Results: results(1)})
		write(d, turnlog.Entry{Round: storagetest.Round(3), Results: results(2)})
		d.Finish(b, "done")
	}
	d := h.Turn("message")
	b.ReportAllocs()
	for b.Loop() {
		record, err := h.Load(b.Context(), d.Grant.TurnID, d.Grant.GrantID)
		if err != nil || len(record.History) != 40 {
			b.Fatal(len(record.History), err)
		}
	}
}
