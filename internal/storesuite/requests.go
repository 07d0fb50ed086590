package storesuite

import (
	"reflect"

	"turnkeeper"
)

// recipeKept: the recipe of a round is read back as it was written, by whoever
// goes on with the turn too; a part that comes twice is kept once, and a refused
// entry leaves no round.
func recipeKept(h *house) {
	d := h.turn()
	tools, frame := turnkeeper.NewRequestPart(`[{"Name":"<clock>"}]`), turnkeeper.NewRequestPart(`{"note":"n"}`)
	recipe := turnkeeper.Recipe{
		Version: 1, Provider: "p", Model: "m", Frame: frame.SHA256, Tools: tools.SHA256, Final: true, FirstPast: 3, LeanPast: 4, Omitted: 5,
		Summary: 2, Dropped: "1-3,7", Notice: "# System Notice\n\n<&>", Compacted: 6, Cut: true, SHA256: "ab", Bytes: 7,
		Window: turnkeeper.Window{Size: 1, Answer: 2, Safety: 3, System: 4, Tools: 5, History: 6, Turn: 7, Notice: 8, Factor: 1.1, Reported: 9},
	}
	for n := range 2 {
		r := round(n + 1)
		r.Recipe = &recipe
		d.append(turnkeeper.Entry{Round: r, Parts: []turnkeeper.RequestPart{tools, frame}})
	}
	d.append(turnkeeper.Entry{Round: round(3)})
	after := h.again(d)
	r := round(4)
	r.Recipe = &recipe
	isIt(h, "an old grant's round", d.Append(h.Context(), turnkeeper.Entry{Round: r}), turnkeeper.ErrFenced)
	_, seen := h.Turn(d.grant.TurnID)
	for _, rounds := range [][]turnkeeper.Round{seen, after.record.Rounds} {
		if len(rounds) != 3 || rounds[0].Recipe == nil || rounds[1].Recipe == nil || rounds[2].Recipe != nil {
			h.Fatalf("%d rounds: %+v", len(rounds), rounds)
		}
		if !reflect.DeepEqual(*rounds[1].Recipe, recipe) {
			h.Errorf("the recipe is %+v, want %+v", *rounds[1].Recipe, recipe)
		}
	}
	parts, err := h.RequestParts(h.Context(), tools.SHA256, frame.SHA256, "other")
	if err != nil || !reflect.DeepEqual(parts, map[string]string{tools.SHA256: tools.Content, frame.SHA256: frame.Content}) {
		h.Errorf("the parts are %v, %v", parts, err)
	}
}

// olderCounted: the newest forty turns of a conversation are read, those before
// them are counted.
func olderCounted(h *house) {
	for n := range 43 {
		d := h.turn()
		equal(h, "history", len(d.record.History), min(n, 40))
		equal(h, "turns before it", d.record.Older, max(n-40, 0))
		isIt(h, "end", d.end(succeeded("done")), nil)
	}
}

// summaryKept: a summary is read by the later turns of its conversation, the
// newest of several; one whose entry is refused was never made.
func summaryKept(h *house) {
	var turns []turnkeeper.TurnID
	for n, want := range []string{"", "", "first", "second"} {
		d := h.turn()
		turns = append(turns, d.grant.TurnID)
		equal(h, "the summary", d.record.Summary.Text, want)
		e := turnkeeper.Entry{Round: round(1)}
		switch n {
		case 1:
			e.Summary = &turnkeeper.Summary{UpTo: turns[0], Text: "first"}
		case 2:
			e.Summary = &turnkeeper.Summary{UpTo: turns[1], Text: "second"}
		case 3:
			equal(h, "it is up to", d.record.Summary.UpTo, turns[1])
			after := h.again(d)
			refused := turnkeeper.Entry{Round: round(1), Summary: &turnkeeper.Summary{UpTo: turns[2], Text: "stale"}}
			isIt(h, "an old grant's summary", d.Append(h.Context(), refused), turnkeeper.ErrFenced)
			d = after
		}
		d.append(e)
		isIt(h, "end", d.end(succeeded("done")), nil)
	}
	equal(h, "the summary that lasts", h.turn().record.Summary.Text, "second")
	h.enqueue("desk", "", "do it")
	equal(h, "that of another conversation", h.next(first).record.Summary.Text, "")
}
