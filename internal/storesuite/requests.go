package storesuite

import (
	"reflect"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// recipeKept checks that the recipe of a round is read back as it was written, also after a take-over,
// that a repeated part is stored once, and that a refused entry leaves no round.
func recipeKept(e *env) {
	d := e.turn()
	tools, frame := turnlog.NewRequestPart(`[{"Name":"<clock>"}]`), turnlog.NewRequestPart(`{"note":"n"}`)
	recipe := turnkeeper.Recipe{
		Version: 1, Provider: "p", Model: "m", Epoch: turnkeeper.EpochID{Turn: d.grant.TurnID, Round: 1},
		Start: &turnkeeper.Epoch{
			Reason: "room", Chain: "hourly", System: frame.SHA256, Tools: tools.SHA256, Form: "f",
			Definition: "d", Past: []turnkeeper.TurnID{3, 4}, LeanPast: 4, Omitted: 5, Summary: 2,
			Dropped: "1-3,7", Room: 6,
			Reasoned: true, BareTurn: 7, BareRound: 8,
		},
		Form: "g", After: 4, Final: true, Notice: "# System Notice\n\n<&>", Running: []turnkeeper.OutputID{"o"},
		Status: "s", Imitations: "i", Cut: true, SHA256: "ab", Bytes: 7,
		Window: turnkeeper.Window{Size: 1, Answer: 2, Safety: 3, System: 4, Tools: 5, History: 6, Turn: 7, Notice: 8,
			Factor: 1.1, Reported: 9},
	}
	for n := range 2 {
		r := round(n + 1)
		r.Recipe = &recipe
		d.append(turnlog.Entry{Round: r, Parts: []turnlog.RequestPart{tools, frame}})
	}
	d.append(turnlog.Entry{Round: round(3)})
	after := e.again(d)
	r := round(4)
	r.Recipe = &recipe
	wantErr(e, "an old grant's round", d.Append(e.Context(), turnlog.Entry{Round: r}), turnkeeper.ErrFenced)
	_, seen := e.Turn(d.grant.TurnID)
	for _, rounds := range [][]turnkeeper.Round{seen, after.record.Rounds} {
		if len(rounds) != 3 || rounds[0].Recipe == nil || rounds[1].Recipe == nil || rounds[2].Recipe != nil {
			e.Fatalf("%d rounds: %+v", len(rounds), rounds)
		}
		if !reflect.DeepEqual(*rounds[1].Recipe, recipe) {
			e.Errorf("the recipe is %+v, want %+v", *rounds[1].Recipe, recipe)
		}
	}
	parts, err := e.RequestParts(e.Context(), tools.SHA256, frame.SHA256, "other")
	if err != nil || !reflect.DeepEqual(parts, map[string]string{tools.SHA256: tools.Content,
		frame.SHA256: frame.Content}) {
		e.Errorf("the parts are %v, %v", parts, err)
	}
}

// olderCounted checks that the newest turns of a conversation are read and older ones are counted.
func olderCounted(e *env) {
	for n := range turnlog.PastTurns + 3 {
		d := e.turn()
		equal(e, "history", len(d.record.History), min(n, turnlog.PastTurns))
		equal(e, "turns before it", d.record.Older, max(n-turnlog.PastTurns, 0))
		wantErr(e, "end", d.end(succeeded("done")), nil)
	}
}

// summaryKept checks that later turns of the conversation read the newest summary, and that a refused
// entry leaves no summary.
func summaryKept(e *env) {
	var turns []turnkeeper.TurnID
	for n, want := range []string{"", "", "first", "second"} {
		d := e.turn()
		turns = append(turns, d.grant.TurnID)
		equal(e, "the summary", d.record.Summary.Text, want)
		entry := turnlog.Entry{Round: round(1)}
		switch n {
		case 1:
			entry.Summary = &turnlog.Summary{UpTo: turns[0], Text: "first"}
		case 2:
			entry.Summary = &turnlog.Summary{UpTo: turns[1], Text: "second"}
		case 3:
			equal(e, "last turn of the summary", d.record.Summary.UpTo, turns[1])
			after := e.again(d)
			refused := turnlog.Entry{Round: round(1), Summary: &turnlog.Summary{UpTo: turns[2], Text: "stale"}}
			wantErr(e, "an old grant's summary", d.Append(e.Context(), refused), turnkeeper.ErrFenced)
			d = after
		}
		d.append(entry)
		wantErr(e, "end", d.end(succeeded("done")), nil)
	}
	equal(e, "the last summary", e.turn().record.Summary.Text, "second")
	e.enqueue("desk", "", "do it")
	equal(e, "the summary of another conversation", e.next(first).record.Summary.Text, "")
}
