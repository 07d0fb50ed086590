package memory

import (
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// labelRows are labels, as migrations/008_labels.up.sql stores them.
type labelRows []turnlog.LabelRow

func (l *labelRows) add(bugs Bug, rows []turnlog.LabelRow) {
	for _, row := range rows {
		if bugs.has(BugSummaryUnlabelled) && row.Kind == turnlog.LabelSummary {
			continue
		}
		*l = append(*l, row) // readers join equal ones
	}
}

// of returns the labels of a turn and of what it knows.
func (l *labelRows) of(r *turnlog.Record) turnlog.Labels {
	turns := []turnkeeper.TurnID{r.Turn.ID}
	for _, past := range r.History {
		turns = append(turns, past.TurnID)
	}
	if r.LastRun != nil {
		turns = append(turns, r.LastRun.TurnID)
	}
	return turnlog.LabelsOf(r.Turn.ID, slices.DeleteFunc(slices.Clone(*l), func(row turnlog.LabelRow) bool {
		switch row.Kind {
		case turnlog.LabelCall:
			return row.ID != int64(r.Turn.ID)
		case turnlog.LabelTurn:
			return !slices.Contains(turns, turnkeeper.TurnID(row.ID))
		case turnlog.LabelMessage:
			return row.ID != int64(r.Message.ID)
		case turnlog.LabelSummary:
			return row.ID != int64(r.Summary.UpTo)
		default:
			return true
		}
	}))
}

// labelsOfReply returns the labels of the reply to a message: those of its turns.
func labelsOfReply(s *state, id turnkeeper.MessageID) (marks []policy.Mark) {
	for _, row := range s.labels {
		if row.Kind == turnlog.LabelTurn && s.turn(turnkeeper.TurnID(row.ID)).MessageID == id {
			marks = policy.Join(marks, []policy.Mark{row.Mark})
		}
	}
	return marks
}

// repeatLabels labels a message that is a labelled reply to its user: see turnkeeper.label_message.
func repeatLabels(s *state, m *turnkeeper.Message) {
	for _, r := range s.replies {
		if len(r.Labels) == 0 || r.User != m.User || plain(r.Body) != plain(m.Body) {
			continue
		}
		for _, mark := range labelsOfReply(s, r.MessageID) {
			s.labels = append(s.labels, turnlog.LabelRow{Kind: turnlog.LabelMessage, ID: int64(m.ID), Mark: mark})
		}
	}
}

// plain returns a text without white space.
func plain(text string) string {
	return strings.NewReplacer(" ", "", "\t", "", "\n", "", "\v", "", "\f", "", "\r", "").Replace(text)
}

// Labels returns all labels, in the order in which they were written.
func (s *tables) Labels() []turnlog.LabelRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.labels)
}
