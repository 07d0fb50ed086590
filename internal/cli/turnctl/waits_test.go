package turnctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// TestEveryPlaceShowsEveryWait shows a turn that is parked for each of the reasons in each of the places that show
// waiting turns. A place that does not know a reason fails it.
func TestEveryPlaceShowsEveryWait(t *testing.T) {
	for _, row := range waiting.Rows {
		if row.Parked == "" {
			continue
		}
		for _, state := range []turnkeeper.TurnState{turnkeeper.TurnWaiting, turnkeeper.TurnQueued} {
			showsEverywhere(t, row, state)
		}
	}
}

// showsEverywhere checks each place with a turn of a state: a turn that is deferred is queued.
func showsEverywhere(t *testing.T, row waiting.Row, state turnkeeper.TurnState) {
	t.Helper()
	turn := openTurn()
	turn.Turn.State, turn.Turn.DueAt = state, after(20*time.Minute)
	w := waiting.Wait{Reason: row.Reason, Turn: turn.Turn.ID, State: turn.Turn.State, Until: after(20 * time.Minute),
		Agent: "helper", Model: "test/large", Count: 1}
	turn.Message.Waits = []waiting.Wait{w}
	awaited := "It waits for " + row.Parked
	if state == turnkeeper.TurnWaiting {
		awaited = "It waits for " + w.Awaited()
	}
	short, tally := w.Short(utcNow.Ago), waiting.Tally{Reason: row.Reason, Turns: 3}
	for place, c := range map[string]struct {
		draw func(*term.Screen)
		want string
	}{
		"turns": {func(s *term.Screen) { showTurns(s, utcNow, []waiting.Turn{turn.WithWaits()}) }, short},
		"top":   {func(s *term.Screen) { showOpenTurns(s, utcNow, []waiting.Turn{turn.WithWaits()}) }, short},
		"top, totals": {func(s *term.Screen) {
			drawTop(s, utcNow, topState{Totals: operate.Totals{Waits: []waiting.Tally{tally}}})
		}, "3 for " + row.Parked},
		"lanes": {func(s *term.Screen) {
			showLanes(s, utcNow, []operate.LaneView{{Waits: turn.Message.Waits}})
		}, short},
		"outside": {func(s *term.Screen) {
			showLanes(s, utcNow, []operate.LaneView{{Outside: turn.Message.Waits}})
		}, short},
		"inbox": {func(s *term.Screen) {
			showMessages(s, utcNow, []waiting.Message{turn.Message})
		}, w.Short(utcNow.Ago)},
		"explain": {func(s *term.Screen) {
			x := explainer{TurnView: turn, Clock: utcNow}
			s.Line("%s", x.status())
		}, awaited},
	} {
		var out bytes.Buffer
		c.draw(&term.Screen{W: &out, Columns: 400})
		if row.Reason == waiting.ModelDown && place == "inbox" {
			c.want = "for test/large"
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s does not say %q for %s:\n%s", place, c.want, row.Reason, out.String())
		}
	}
}
