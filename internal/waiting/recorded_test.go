package waiting_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/waiting"
)

// TestTextsAreRecorded records all that is said of each reason: with all fields, without each of them, and with each
// state of the turn in its way.
func TestTextsAreRecorded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	format := func(at time.Time) string { return at.UTC().Format(time.TimeOnly) }
	for _, row := range append(append([]waiting.Row{}, waiting.Rows...), waiting.Row{Reason: "a_later_reason"}) {
		whole := waiting.Wait{
			Reason: row.Reason, Since: time.Unix(60, 0), Until: time.Unix(120, 0), Agent: "clerk.",
			Lane: "clerk/main\x1b", Message: 3, Turn: 7, State: turnkeeper.TurnRunning, Worker: "w-1",
			Stopped: true, Silent: 90 * time.Second, Model: "p/m", Count: 2, Why: "an error" + strings.Repeat("!", 400),
		}
		fmt.Fprintf(&b, "=== %s: %t %t %t, parked for %q\n%s\n%s\n%s\n", row.Reason, row.Everybody, row.Running,
			row.Minor, row.Parked,
			waiting.Generic(row.Short), waiting.Generic(row.Long), waiting.Generic(row.Advice))
		said := map[string]bool{}
		say := func(without string, w waiting.Wait) {
			text := fmt.Sprintf("  %s\n  %s\n  %s\n  %s\n", w.Short(format), w.Long(format),
				w.Advice(9, "./worker"), w.Awaited())
			if !said[text] {
				b.WriteString(without + "\n" + text)
			}
			said[text] = true
		}
		say("whole", whole)
		for i := range reflect.TypeFor[waiting.Wait]().NumField() {
			less := whole
			if name := reflect.TypeFor[waiting.Wait]().Field(i).Name; name != "Reason" {
				reflect.ValueOf(&less).Elem().Field(i).SetZero()
				say("without "+name, less)
			}
		}
		for _, state := range []turnkeeper.TurnState{turnkeeper.TurnQueued, turnkeeper.TurnWaiting} {
			other, soon := whole, whole
			other.State, soon.State, soon.Until = state, state, time.Time{}
			say(string(state), other)
			say(string(state)+" without an end", soon)
		}
		for _, n := range []int{1, 99, 100} {
			other := whole
			other.Count = n
			say(fmt.Sprint(n), other)
		}
	}
	golden.File(t, "testdata/texts.txt", b.String())
}

// TestListsOfReasonsAreRecorded records what lists say of several reasons: of each two, in both orders.
func TestListsOfReasonsAreRecorded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	format := func(at time.Time) string { return at.UTC().Format(time.TimeOnly) }
	for i, first := range waiting.Rows {
		second := waiting.Rows[(i*7+3)%len(waiting.Rows)]
		one := waiting.Wait{Reason: first.Reason, Turn: 7, State: turnkeeper.TurnQueued,
			Until: time.Unix(60, 0), Count: 2}
		other := waiting.Wait{Reason: second.Reason, Turn: 8, State: turnkeeper.TurnRunning, Count: 3}
		for _, waits := range [][]waiting.Wait{{one, other}, {other, one}, {one, one}, {one}} {
			m := waiting.Message{Message: turnkeeper.Message{State: turnkeeper.MessageRunning, TurnID: 7,
				WaitsFor: []string{"p/m", "p/n"}}, Waits: waits}
			state, note := waiting.Standing(m, format)
			main, found := waiting.Main(waits)
			turn := waiting.Turn{Turn: turnkeeper.Turn{State: turnkeeper.TurnQueued}, Waits: waits}
			fmt.Fprintf(&b, "%s %s: %s, %q, main %s %t, doing %q, notes %q %q, for %q\n", first.Reason, second.Reason,
				state, note, main.Reason, found, waiting.Doing(turn, format),
				waiting.Notes(format, waits, nil), waiting.Notes(format, waits[:1], waits[1:]),
				waiting.For(waiting.Parking(waits)))
		}
		for _, tally := range []waiting.Tally{
			{Reason: first.Reason, Turns: 1200, Since: time.Unix(60, 0), Until: time.Unix(120, 0)},
			{Reason: first.Reason, Turns: 1, Since: time.Unix(60, 0)},
			{Reason: first.Reason, Turns: 2, Until: time.Unix(120, 0)}, {Reason: first.Reason, Turns: 3},
		} {
			fmt.Fprintf(&b, "    %s | %s\n", tally.Brief(), tally.Long(format))
		}
	}
	for n := range 8 {
		fmt.Fprintln(&b, n, waiting.ParkedFor(n&1 != 0, n&2 != 0, n&4 != 0))
	}
	for _, state := range []turnkeeper.MessageState{turnkeeper.MessageWaiting, turnkeeper.MessageRunning} {
		for _, w := range []waiting.Wait{
			{Reason: waiting.ModelDown, Model: "p/m", Turn: 7, State: turnkeeper.TurnQueued, Until: time.Unix(60, 0)},
			{Reason: waiting.Deferred, Turn: 7, State: turnkeeper.TurnQueued, Until: time.Unix(60, 0)},
			{Reason: waiting.Deferred, Turn: 8, State: turnkeeper.TurnQueued, Until: time.Unix(60, 0)},
			{Reason: waiting.Deferred, Turn: 7, State: turnkeeper.TurnQueued},
		} {
			m := waiting.Message{Message: turnkeeper.Message{State: state, TurnID: 7, WaitsFor: []string{"p/m", "p/n"}},
				Waits: []waiting.Wait{w}}
			fmt.Fprintln(&b, fmt.Sprint(waiting.Standing(m, format)))
		}
	}
	golden.File(t, "testdata/lists.txt", b.String())
}
