package client

import (
	"context"

	"turnkeeper/asks"
)

// AnswerAsk answers an ask, and its turn continues. In a transaction, the answer takes effect at the commit. An error
// from the database aborts the transaction, like any failed statement.
//
// A repeat of the same answer by the same person does nothing. AnswerAsk returns asks.ErrClosed if the ask has another
// answer, has expired or was withdrawn, asks.ErrInvalid if the answer is invalid for the ask, and
// turnkeeper.ErrNotFound if the ask does not exist. An empty Channel is "sql".
func AnswerAsk(ctx context.Context, db DB, id asks.ID, a asks.Answer) (asks.State, error) {
	var state asks.State
	err := db.QueryRow(ctx,
		`select turnkeeper.answer_ask($1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text)`,
		id, a.Decision, a.By, orNull(a.Channel), orNull(a.Comment), orNull(a.Answer), orNull(a.Edited),
		orNull(a.Hash)).Scan(&state)
	return state, plain(err)
}
