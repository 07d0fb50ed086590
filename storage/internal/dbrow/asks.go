package dbrow

import (
	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/storage/internal/dbsqlc"
)

// Ask converts a row.
func Ask(r dbsqlc.TurnkeeperAsk) asks.Ask {
	return asks.Ask{
		Question: asks.Question{
			Call: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
			Kind: asks.Kind(r.Kind), N: int(r.N),
			Tool: r.Tool, Arguments: r.Arguments, Rule: r.Rule, Reason: r.Reason, Schema: OrZero(r.Schema),
			Resume: OrZero(r.Resume),
			Terms:  asks.Terms{Audience: r.Audience, Hold: r.Hold, Timeout: r.ExpiresAt.Sub(r.OpenedAt)},
		},
		ID: asks.ID(r.ID), Turn: turnkeeper.TurnID(r.TurnID), State: asks.State(r.State), Hash: r.ArgsHash,
		OpenedAt: r.OpenedAt, ExpiresAt: r.ExpiresAt,
		Seen: r.SeenAt != nil, Used: r.UsedAt != nil, ClosedAt: OrZero(r.ClosedAt), AnsweredBy: OrZero(r.AnsweredBy),
		Channel: OrZero(r.Channel),
		Comment: OrZero(r.Comment), Answer: OrZero(r.Answer), Edited: OrZero(r.Edited),
		EditedHash: OrZero(r.EditedHash),
	}
}
