package turnlog_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

func mark(label policy.Label, source string) policy.Mark {
	return policy.Mark{Label: label, Source: source}
}

// TestLabelRows writes an entry with a label of each kind, and reads what its turn knows from the rows.
func TestLabelRows(t *testing.T) {
	t.Parallel()
	begin, summed, task, result := mark(policy.Private, "the message"), mark(policy.Untrusted, "a summary"),
		mark(policy.Private, "a task"), mark(policy.Untrusted, "a page")
	key := turnkeeper.CallKey{Round: 2, Ordinal: 3}
	entry := turnlog.Entry{
		Labels: []policy.Mark{begin}, Summary: &turnlog.Summary{UpTo: 5, Labels: []policy.Mark{summed}},
		Starts: []turnlog.CallStart{{Key: key}, {Key: key, Spawn: &turnlog.Spawn{Message: 9,
			Labels: []policy.Mark{task}}}}, Results: []turnlog.CallResult{{Key: key, Labels: []policy.Mark{result}}},
	}
	rows := entry.LabelRows(7)
	want := []turnlog.LabelRow{
		{Kind: turnlog.LabelTurn, ID: 7, Mark: begin}, {Kind: turnlog.LabelSummary, ID: 5, Mark: summed},
		{Kind: turnlog.LabelMessage, ID: 9, Mark: task},
		{Kind: turnlog.LabelCall, ID: 7, Call: key, Mark: result}, {Kind: turnlog.LabelTurn, ID: 7,
			Call: turnkeeper.CallKey{Round: 2}, Mark: result},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if rows := (turnlog.Entry{}).LabelRows(7); len(rows) != 0 {
		t.Errorf("an entry without labels has the rows %v", rows)
	}
	later := turnlog.LabelRow{Kind: turnlog.LabelTurn, ID: 6, Call: turnkeeper.CallKey{Round: 1},
		Mark: mark(policy.Untrusted, "an earlier turn")}
	known := turnlog.LabelsOf(7, append(rows, later, turnlog.LabelRow{Kind: turnlog.LabelCall, ID: 7, Call: key,
		Mark: mark(policy.Private, "a file")}))
	if diff := cmp.Diff(turnlog.Labels{
		Before: []policy.Mark{begin, summed}, Calls: map[turnkeeper.CallKey][]policy.Mark{key: {result,
			mark(policy.Private, "a file")}},
	}, known); diff != "" {
		t.Errorf("the turn knows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(turnlog.Labels{Before: []policy.Mark{later.Mark},
		Calls: map[turnkeeper.CallKey][]policy.Mark{}}, turnlog.LabelsOf(7, []turnlog.LabelRow{later})); diff != "" {
		t.Errorf("of an earlier turn it knows (-want +got):\n%s", diff)
	}
}

// TestARefusedWriteIsReadFromItsNotice writes and reads writes that had to wait, and notices that are about something
// else.
func TestARefusedWriteIsReadFromItsNotice(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, w := range []turnlog.RefusedWrite{{For: 1500 * time.Millisecond, SQLState: "53100", EndedAt: at},
		{For: time.Millisecond, EndedAt: at}} {
		event := w.Event(4, "it waited")
		if event.Type != turnkeeper.EventNotice || event.Round != 4 {
			t.Errorf("the event is %+v", event)
		}
		if read, ok := turnlog.ReadRefusedWrite(string(event.Data), at); !ok || read != w {
			t.Errorf("%s is read as %+v, %t, want %+v", event.Data, read, ok, w)
		}
	}
	for _, data := range []string{`{"text":"x"}`, `{"text":"x","waited_ms":0,"sqlstate":"53100"}`,
		`{"waited_ms":-1}`, `[]`, ``} {
		if read, ok := turnlog.ReadRefusedWrite(data, at); ok || read != (turnlog.RefusedWrite{}) {
			t.Errorf("%s is read as %+v", data, read)
		}
	}
}

// TestSubAgentsOfATurn checks the place of a turn in its tree, and how the ends of its sub-agents count.
func TestSubAgentsOfATurn(t *testing.T) {
	t.Parallel()
	alone, third := turnlog.Lineage{}, turnlog.Lineage{Agents: []string{"boss", "scout", "runner"}}
	if alone.Depth() != 0 || third.Depth() != 2 || (turnlog.Lineage{Agents: []string{"boss"}}).Depth() != 0 {
		t.Errorf("depths %d and %d", alone.Depth(), third.Depth())
	}
	if diff := cmp.Diff([]string{"clerk"}, alone.Within("clerk")) + cmp.Diff(third.Agents,
		third.Within("runner")); diff != "" {
		t.Error(diff)
	}
	for agent, want := range map[string]bool{"boss": true, "scout": true, "runner": true, "clerk": false} {
		if got := third.Ancestor("runner", agent); got != want {
			t.Errorf("%s is above the runner: %t", agent, got)
		}
		if got := alone.Ancestor("clerk", agent); got != (agent == "clerk") {
			t.Errorf("%s is above a clerk outside a tree: %t", agent, got)
		}
	}
	for failure, refused := range map[turnlog.SpawnFailure]bool{
		"": false, turnlog.SpawnTimeout: false, turnlog.SpawnUnknownAgent: true, turnlog.SpawnTreeFull: true,
		turnlog.SpawnTooLong: true,
	} {
		if failure.Refused() != refused {
			t.Errorf("%q: refused %t", failure, failure.Refused())
		}
	}
	for outcome, want := range map[turnkeeper.TurnState]turnkeeper.CallState{
		turnkeeper.TurnSucceeded: turnkeeper.CallSucceeded, turnkeeper.TurnDegraded: turnkeeper.CallSucceeded,
		turnkeeper.TurnFailed:    turnkeeper.CallFailed,
		turnkeeper.TurnCancelled: turnkeeper.CallFailed, "": turnkeeper.CallFailed,
	} {
		if got := (turnlog.SpawnEnd{Outcome: outcome}).State(); got != want {
			t.Errorf("a sub-agent that ended %q: %s", outcome, got)
		}
	}
	if got := turnlog.SpawnConversation(7, turnkeeper.CallKey{Round: 2, Ordinal: 3}); got != "turn-7-round-2-tool-3" {
		t.Errorf("its conversation is %s", got)
	}
	if part := turnlog.NewRequestPart("abc"); part.Content != "abc" ||
		part.SHA256 != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("a part is %+v", part)
	}
}
