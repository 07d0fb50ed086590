package storage_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

var turnStates = []turnkeeper.TurnState{
	turnkeeper.TurnQueued, turnkeeper.TurnRunning, turnkeeper.TurnWaiting, turnkeeper.TurnSucceeded,
	turnkeeper.TurnDegraded, turnkeeper.TurnFailed, turnkeeper.TurnCancelled,
}

var callStates = []turnkeeper.CallState{
	turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning, turnkeeper.CallSucceeded,
	turnkeeper.CallFailed,
	turnkeeper.CallSkipped, turnkeeper.CallDenied, turnkeeper.CallUnknown, turnkeeper.CallCancelled,
}

// moved reports whether the database allows a state transition, in a transaction that it rolls
// back. Any other error fails the test.
func (h *env) moved(t *testing.T, steps func(ctx context.Context, tx pgx.Tx) (pgconn.CommandTag, error)) bool {
	t.Helper()
	tx, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	tag, err := steps(t.Context(), tx)
	if err == nil && tag.RowsAffected() == 1 {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "TK007" {
		t.Fatalf("%v rows, error %v", tag, err)
	}
	return false
}

// The database and the types of package turnkeeper must allow the same state transitions. For the
// database, the same state again is not a transition.
func TestTurnMovesAgreeWithTheNouns(t *testing.T) {
	h := newEnv(t)
	message := h.Submit("clerk", "", "x")
	for _, from := range turnStates {
		for _, to := range turnStates {
			if from == to {
				continue
			}
			allowed := from.MoveTo(to) == nil
			got := h.moved(t, func(ctx context.Context, tx pgx.Tx) (pgconn.CommandTag, error) {
				_,
					err := tx.Exec(ctx,
					`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash,
						state, token, grant_id, lease_until, ended_at, stop_reason)
					select 1, $1, 1, 'clerk', 'main', 'clerk', 'message', definition_hash, $2::text, 1, gen_random_uuid(), now(),
						case when $3::boolean then now() end, case when $3 then 'none' end from turnkeeper.agents where name = 'clerk'`,
					message, from, from.Terminal())
				if err != nil {
					return pgconn.CommandTag{}, err
				}
				return tx.Exec(ctx,
					`update turnkeeper.turns set state = $1, ended_at = case when $2::boolean then now() end,
					stop_reason = case when $2 then 'none' end where id = 1`, to, to.Terminal())
			})
			if got != allowed {
				t.Errorf("turn from %s to %s: the database says %v, MoveTo %v", from, to, got, allowed)
			}
		}
	}
}

// The writer must allow the same state transitions of calls as type CallState. For results, the same open state again
// is not a transition. A call becomes started only by a start.
func TestCallMovesAgreeWithTheNouns(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectKeyed)})
	k := storagetest.Key(1, 1)
	for _, from := range callStates {
		for _, to := range callStates {
			if from == to && !from.Answered() {
				continue
			}
			allowed := from.MoveTo(to) == nil
			record := h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, "worker-1").Record
			call := &record.Rounds[0].Calls[0]
			call.State, call.Starts, call.Nonce = from, 0, ""
			if from != turnkeeper.CallPlanned {
				call.Starts, call.Nonce = 1, "n"
			}
			e := turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(k, call.Nonce, to, "x")}}
			if to == turnkeeper.CallStarted {
				e = turnlog.Entry{Starts: []turnlog.CallStart{storagetest.Start(k, "from "+string(from), call.Starts+1,
					turnkeeper.EffectKeyed)}}
			}
			err := h.Writer(record, d.Grant).Append(t.Context(), e, turnlog.Consequence{})
			if (err == nil) != allowed || err != nil && !errors.Is(err, turnkeeper.ErrBadMove) &&
				!errors.Is(err, turnkeeper.ErrJournalMoved) {
				t.Errorf("call from %s to %s: the writer says %v, MoveTo %v", from, to, err, allowed)
			}
		}
	}
}

func TestWriterRefusesABadMove(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	err := d.Append(t.Context(), turnlog.Entry{
		Verdicts: []turnlog.CallResult{{Key: storagetest.Key(1, 1), State: turnkeeper.CallUnknown, Shown: "?"}},
	}, storagetest.Answered)
	if !errors.Is(err, turnkeeper.ErrBadMove) {
		t.Errorf("planned to unknown: %v", err)
	}
}

// TestTokensOnlyGrow runs turns in two lanes. Each grant has a higher token than all before it, although the row of a
// lane goes when nothing runs there and nothing has failed.
func TestTokensOnlyGrow(t *testing.T) {
	h := newEnv(t)
	var last int64
	for range 3 {
		for _, agent := range []string{"clerk", "desk"} {
			d := h.TurnOf(agent, "worker-1")
			if d.Grant.Token <= last {
				t.Errorf("token %d after %d", d.Grant.Token, last)
			}
			last = d.Grant.Token
			d.Finish(t, "done")
			if n := storagetest.One[int](h, "select count(*) from turnkeeper.leases"); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		}
	}
}

func TestConstraintsOfTheHouse(t *testing.T) {
	h := newEnv(t)
	h.Turn("x").Finish(t, "done")
	const turn = `insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
		select message_id, attempt + n, agent, conversation, lane, trigger, definition_hash, `
	for name, c := range map[string]struct{ sql, constraint string }{
		"a reason that is none":   {"update turnkeeper.turns set stop_reason = 'bored'", "turns_check"},
		"a reason without an end": {"update turnkeeper.turns set ended_at = null", "turns_check"},
		"ended without a reason":  {"update turnkeeper.turns set stop_reason = null", "turns_check"},
		"a second reply to a message": {
			`with other as (
				` + turn + `'failed', token, now(), 'none' from turnkeeper.turns, (values (1)) v(n) returning id)
			insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body)
				select message_id, other.id, agent, conversation, outcome, body from turnkeeper.replies, other`, "replies_message_id_key",
		},
		"a second reply of a turn": {
			`insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body, sent_by)
				select message_id + 1, turn_id, agent, conversation, outcome, body, sent_by from turnkeeper.replies`, "replies_turn_id_key",
		},
		"an empty reply": {"update turnkeeper.replies set body = ''", "replies_body_check"},
		"a second answer": {turn + "'degraded', token, now(), 'none' from turnkeeper.turns, (values (1)) v(n)",
			"turns_one_answer_per_message"},
		"the same attempt again": {turn + "'failed', token, now(), 'none' from turnkeeper.turns, (values (0)) v(n)",
			"turns_message_id_attempt_key"},
	} {
		_, err := h.Pool().Exec(t.Context(), c.sql)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.HasPrefix(pg.ConstraintName, c.constraint) {
			t.Errorf("%s: %v, want a refusal by %s", name, err, c.constraint)
		}
	}
}

func TestOneOpenTurnALane(t *testing.T) {
	h := newEnv(t)
	h.Submit("clerk", "", "first")
	second := h.Submit("clerk", "", "second")
	h.Dispatch("w")
	_, err := h.Pool().Exec(t.Context(),
		`insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token)
		select $1, 1, agent, conversation, lane, trigger, definition_hash, 'queued', token from turnkeeper.turns`, second)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.ConstraintName != "turns_one_open_per_lane" {
		t.Errorf("a second open turn: %v", err)
	}
}
