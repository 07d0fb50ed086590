package journal

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// queueLabels queues the statement that writes labels, if there are any. It must come before the reply, which copies
// the labels of its turn.
func queueLabels(ctx context.Context, q *dbsqlc.Queries, clean func(string) string, rows []turnlog.LabelRow) error {
	if len(rows) == 0 {
		return nil
	}
	var p dbsqlc.AddLabelsParams
	for _, r := range rows {
		p.Kinds, p.Ids = append(p.Kinds, string(r.Kind)), append(p.Ids, r.ID)
		p.Rounds = append(p.Rounds, int32(r.Call.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(r.Call.Ordinal)) //nolint:gosec // few
		p.Labels, p.Sources = append(p.Labels, string(r.Label)), append(p.Sources, clean(r.Source))
	}
	return q.AddLabels(ctx, p)
}

// loadLabels reads the labels of a turn, its message and its history. summary is the last turn in the summary of its
// history; 0: there is none.
func (s *Store) loadLabels(ctx context.Context, record *turnlog.Record, summary turnkeeper.TurnID) error {
	turns := []int64{int64(record.Turn.ID)}
	for _, past := range record.History {
		turns = append(turns, int64(past.TurnID))
	}
	if record.LastRun != nil {
		turns = append(turns, int64(record.LastRun.TurnID))
	}
	rows, err := s.db.Q.LabelsForTurn(ctx, int64(record.Turn.ID), turns, int64(record.Message.ID), int64(summary))
	record.Labels = turnlog.LabelsOf(record.Turn.ID, dbrow.Map(rows, labelRow))
	return pg.Translate(err)
}

func labelRow(r dbsqlc.TurnkeeperLabel) turnlog.LabelRow {
	return turnlog.LabelRow{
		Kind: turnlog.LabelKind(r.Kind), ID: r.ID, Call: turnkeeper.CallKey{Round: int(r.Round),
			Ordinal: int(r.Ordinal)},
		Mark: policy.Mark{Label: policy.Label(r.Label), Source: r.Source},
	}
}

// labelReplies adds the stored labels to replies of sub-agents.
func (w *Writer) labelReplies(ctx context.Context, arrived []turnlog.CallResult) error {
	var messages []int64
	for _, r := range arrived {
		if r.Spawned != nil {
			messages = append(messages, int64(r.Spawned.Message))
		}
	}
	if len(messages) == 0 {
		return nil
	}
	rows, err := w.store.db.Q.LabelsOfReplies(ctx, messages)
	for i := range arrived {
		for _, row := range rows {
			if end := arrived[i].Spawned; end != nil && int64(end.Message) == row.ID {
				end.Labels = append(end.Labels, labelRow(row).Mark)
			}
		}
	}
	return err
}

// labelArrived adds the stored labels of detached calls to their results.
func (w *Writer) labelArrived(ctx context.Context, arrived []turnlog.CallResult) error {
	turn := int64(w.grant.TurnID)
	rows, err := w.store.db.Q.LabelsForTurn(ctx, turn, []int64{}, 0, 0)
	for _, row := range dbrow.Map(rows, labelRow) {
		for i := range arrived {
			if row.Kind == turnlog.LabelCall && row.Call == arrived[i].Key && arrived[i].Spawned == nil {
				arrived[i].Labels = append(arrived[i].Labels, row.Mark)
			}
		}
	}
	return err
}

// marks combines two lists of a query into labels.
func marks(labels, sources []string) (all []policy.Mark) {
	for i, label := range labels {
		all = append(all, policy.Mark{Label: policy.Label(label), Source: sources[i]})
	}
	return all
}
