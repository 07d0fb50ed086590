package client

import (
	"context"

	"turnkeeper/asks"
)

// AnswerAsk answers an ask, and its turn goes on. In a transaction, the answer counts once that commits; after an error from
// the database the transaction has failed, as after any failed statement.
//
// A repeat of the same answer does nothing. The error is asks.ErrClosed if the ask has another answer, has expired or was
// withdrawn, asks.ErrInvalid if it does not take the answer, and turnkeeper.ErrNotFound if there is no such ask. An empty
// Channel is "sql".
func AnswerAsk(ctx context.Context, db DB, id asks.ID, a asks.Answer) (asks.State, error) {
	var state asks.State
	err := db.QueryRow(ctx, `select turnkeeper.answer_ask($1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text)`,
		id, a.Decision, a.By, orNull(a.Channel), orNull(a.Comment), orNull(a.Answer), orNull(a.Edited), orNull(a.Hash)).Scan(&state)
	return state, plain(err)
}
