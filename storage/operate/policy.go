package operate

import (
	"context"
	"encoding/json"
	"time"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A JournaledCall is a call of the journal, as rules see it.
type JournaledCall struct {
	policy.Call
	Turn  turnkeeper.TurnID
	Key   turnkeeper.CallKey
	State turnkeeper.CallState
}

const callsPage = 1000

// JournaledCalls calls each for every call of the turns that were created since a time, in order. The arguments are
// those of the model, and the labels those that the turn had before the call's round.
func (s *AskStore) JournaledCalls(ctx context.Context, since time.Time, each func(JournaledCall) error) error {
	after := dbsqlc.JournaledCallsParams{Since: since, MaxRows: callsPage}
	for {
		rows, err := s.db.Q.JournaledCalls(ctx, after)
		if err != nil {
			return pg.Translate(err)
		}
		for _, r := range rows {
			err := each(JournaledCall{
				Turn: turnkeeper.TurnID(r.TurnID), Key: turnkeeper.CallKey{Round: int(r.Round),
					Ordinal: int(r.Ordinal)}, State: turnkeeper.CallState(r.State),
				Call: policy.Call{
					Tool: r.Name, Arguments: json.RawMessage(r.Arguments), Effect: turnkeeper.Effect(r.Effect),
					Agent: r.Agent,
					User:  r.UserName, Conversation: r.Conversation, Trigger: turnkeeper.Trigger(r.Trigger),
					Labels: dbrow.Map(r.Labels, func(label string) policy.Mark {
						return policy.Mark{Label: policy.Label(label)}
					}),
				},
			})
			if err != nil {
				return err
			}
		}
		if len(rows) < callsPage {
			return nil
		}
		last := rows[len(rows)-1]
		after.Turn, after.Round, after.Ordinal = last.TurnID, last.Round, last.Ordinal
	}
}
