package client_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/client"
)

func TestAnswerAsk(t *testing.T) {
	s := open(t)
	message := s.send(s.admin, "clerk", "pay")
	s.exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token)
		select 1, $1::bigint, 1, 'clerk', 'main', 'clerk', 'message', repeat('a', 64), 'waiting', 1`, int64(message))
	s.exec(
		`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
		values (1, 1, 1, 'approve', 1, 'pay', '{}', 'h', '', '', '{}', true, now() + interval '1 hour')`)
	var id asks.ID
	if err := s.admin.QueryRow(t.Context(), "select id from turnkeeper.asks").Scan(&id); err != nil {
		t.Fatal(err)
	}
	yes := asks.Answer{Decision: asks.Approved, By: "ann", Comment: "fine", Hash: "h"}
	undone := errors.New("undone")
	err := pgx.BeginFunc(t.Context(), s.admin, func(tx pgx.Tx) error {
		if state, err := client.AnswerAsk(t.Context(), tx, id, yes); err != nil || state != asks.Approved {
			t.Errorf("it is %q, error %v", state, err)
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id     asks.ID
		answer asks.Answer
		want   error
	}{
		{id, asks.Answer{Decision: asks.Answered, By: "ann", Answer: "1"}, asks.ErrInvalid},
		{id, asks.Answer{Decision: asks.Approved, By: "ann", Hash: "other"}, asks.ErrInvalid},
		{id + 1, yes, turnkeeper.ErrNotFound},
		{id, yes, nil},
		{id, yes, nil},
		{id, asks.Answer{Decision: asks.Denied, By: "bob"}, asks.ErrClosed},
	} {
		if _, err := client.AnswerAsk(t.Context(), s.admin, c.id, c.answer); !errors.Is(err, c.want) {
			t.Errorf("%+v: error %v, want %v", c.answer, err, c.want)
		}
	}
	var stored string
	err = s.admin.QueryRow(t.Context(),
		"select concat_ws(' ', a.state, a.answered_by, a.channel, a.comment, t.state) from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id").Scan(&stored)
	if err != nil || stored != "approved ann sql fine queued" {
		t.Errorf("stored %q, error %v", stored, err)
	}
}
