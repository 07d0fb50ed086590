package turnlog

import (
	"turnkeeper"
	"turnkeeper/policy"
)

// A LabelKind says what a label belongs to.
type LabelKind string

// The kinds.
const (
	LabelCall    LabelKind = "call"    // the result of a call
	LabelTurn    LabelKind = "turn"    // what a turn knows
	LabelMessage LabelKind = "message" // a message to a sub-agent
	LabelReply   LabelKind = "reply"   // the reply to a message
	LabelSummary LabelKind = "summary" // of earlier turns
)

// A LabelRow is a label of something.
type LabelRow struct {
	Kind LabelKind
	ID   int64 // of the turn or the message; of the last turn in a summary
	// LabelCall: the call. LabelTurn: the round after which the turn has it; 0: from its beginning
	Call turnkeeper.CallKey
	policy.Mark
}

// LabelRows returns the labels that an entry of a turn's journal writes.
func (e Entry) LabelRows(turn turnkeeper.TurnID) (rows []LabelRow) {
	add := func(kind LabelKind, id int64, call turnkeeper.CallKey, marks []policy.Mark) {
		for _, m := range marks {
			rows = append(rows, LabelRow{kind, id, call, m})
		}
	}
	add(LabelTurn, int64(turn), turnkeeper.CallKey{}, e.Labels)
	if e.Summary != nil {
		add(LabelSummary, int64(e.Summary.UpTo), turnkeeper.CallKey{}, e.Summary.Labels)
	}
	for _, start := range e.Starts {
		if start.Spawn != nil {
			add(LabelMessage, int64(start.Spawn.Message), turnkeeper.CallKey{}, start.Spawn.Labels)
		}
	}
	for _, result := range e.Results {
		rows = append(rows, result.LabelRows(turn)...)
	}
	return rows
}

// LabelRows returns the labels that a result brings: its own, and those of its turn.
func (r CallResult) LabelRows(turn turnkeeper.TurnID) (rows []LabelRow) {
	for _, m := range r.Labels {
		rows = append(rows, LabelRow{LabelCall, int64(turn), r.Key, m}, LabelRow{LabelTurn, int64(turn),
			turnkeeper.CallKey{Round: r.Key.Round}, m})
	}
	return rows
}

// Labels are what a turn knows of labels.
type Labels struct {
	Before []policy.Mark                        // from its beginning: of its message and of the history
	Calls  map[turnkeeper.CallKey][]policy.Mark // of the results of its calls
}

// LabelsOf returns the labels of a turn from those of itself, of its calls but no others, and of what it knows.
func LabelsOf(turn turnkeeper.TurnID, rows []LabelRow) Labels {
	l := Labels{Calls: map[turnkeeper.CallKey][]policy.Mark{}}
	for _, row := range rows {
		ofResult := row.ID == int64(turn) && row.Call.Round > 0 // other kinds have no round
		switch {
		case row.Kind == LabelCall:
			l.Calls[row.Call] = policy.Join(l.Calls[row.Call], []policy.Mark{row.Mark})
		case !ofResult:
			l.Before = policy.Join(l.Before, []policy.Mark{row.Mark})
		}
	}
	return l
}
