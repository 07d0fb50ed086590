package core_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// Storage grows with the new content of a round, not with the size of its request: a hundred model calls with
// results of 5 KB, in a conversation of 200,000 tokens. A turn has at most twenty calls, so it takes five
// turns. The test measures the allocated storage with indexes, dead rows and River's tables;
// docs/context-window.md has the figure.
func TestStorageGrowsWithWhatIsNew(t *testing.T) {
	t.Parallel()
	const rounds, resultBytes = 20, 5000
	turns := testrun.Count(2, 5)
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [mark_none]", "max_rounds: 20", "max_tool_calls: 100", "context_window: 1000000")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("Noted.") })
	e.StartWorker()
	source := rand.NewChaCha8([32]byte{}) // incompressible
	random := func(n int) string {
		bytes := make([]byte, n)
		_, _ = source.Read(bytes)
		return base64.StdEncoding.EncodeToString(bytes)[:n]
	}
	for range 11 {
		e.TurnOf(e.Send("clerk", random(60_000)))
	}

	content, sent := 0, 0
	for turn := range turns {
		for n := range rounds + 1 {
			e.Ledger.SetAnswer(fmt.Sprint(turn, "-", n), random(resultBytes))
		}
		var calls atomic.Int64 // reading the round off a request of 900 KB takes longer than the round
		e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
			n := calls.Add(1)
			if n == rounds {
				return inferencetest.Text("That is all I found out.")
			}
			return inferencetest.Message("I look at the next one.", inferencetest.Call{
				ID: fmt.Sprintf("call_%d_%d", turn, n), Name: "mark_none",
				Arguments: fmt.Sprintf(`{"label":"%d-%d"}`, turn, n),
			})
		})
		e.Exec("vacuum") // what the turns before left is not this turn's
		before, asked := storedBytes(e), len(e.Model.Requests())
		shown := e.TurnOf(e.Send("clerk", "Look at the next twenty."))
		e.WantEnd(shown, "succeeded", "none", rounds)
		news := len("Look at the next twenty.") + len("That is all I found out.")
		for _, c := range shown.Calls() {
			news += len("I look at the next one.") + len(`{"label":"0-00"}`) + len(c.Result)
		}
		for _, r := range e.Model.Requests()[asked:] {
			sent += len(r.Body)
		}
		grown := storedBytes(e) - before
		content += news
		if share := float64(grown) / float64(news); share > 3 {
			t.Errorf("turn %d: %d bytes are stored for %d new ones, %.2f times as much: %s", turn+1, grown, news, share,
				tableSizes(e))
		}
		t.Logf("turn %d: %d new bytes, %d stored", turn+1, news, grown)
	}
	e.Exec("vacuum")
	t.Logf("%d bytes of new content; %d bytes were sent\n%s", content, sent, tableSizes(e))
	if tokens := sent / turns / rounds * 10 / 32; tokens < 200_000 {
		t.Errorf("requests had about %d tokens", tokens)
	}
}

// storedBytes returns the size on disk of all tables and indexes.
func storedBytes(e *env.Env) int {
	e.T.Helper()
	return env.Query[int](e, `select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
		where c.relnamespace = 'turnkeeper'::regnamespace and c.relkind = 'r'`)
}

// tableSizes lists the tables by size.
func tableSizes(e *env.Env) string {
	e.T.Helper()
	return strings.Join(env.Query[[]string](e, `select array_agg(relname || ' ' || size order by size desc) from (
		select c.relname, pg_total_relation_size(c.oid) as size from pg_class c
		where c.relnamespace = 'turnkeeper'::regnamespace and c.relkind = 'r' and pg_total_relation_size(c.oid) > 65536) t`), ", ")
}
