package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// TestAnswersBySQL answers asks as applications do. The suite of the stores tests what each kind of ask takes.
func TestAnswersBySQL(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("hello")
	var n int
	open := func(kind asks.Kind) (id asks.ID) {
		n++
		d.Write(t, turnlog.Entry{Asks: []asks.Question{{
			Call: storagetest.Key(n, 1), Kind: kind, N: 1, Tool: "pay", Arguments: `{"amount":900}`,
			Terms: asks.Terms{Timeout: time.Hour},
		}}})
		return storagetest.One[asks.ID](h, "select max(id) from turnkeeper.asks")
	}
	// answer returns the code of the error; empty: none.
	answer := func(arguments ...any) string {
		_, err := h.Pool().Exec(t.Context(), "select turnkeeper.answer_ask($1, $2, $3, $4, $5, $6, $7)", arguments...)
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			return refused.Code
		}
		return ""
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	text := func(n int) string { return `"` + long(n-2) + `"` }
	object := func(n int) string { return `{"a":"` + long(n-8) + `"}` }

	id := open(asks.KindApprove)
	for name, got := range map[string]string{
		"no ask":            answer(nil, "denied", "ann", "sql", nil, nil, nil),
		"no decision":       answer(id, nil, "ann", "sql", nil, nil, nil),
		"nobody":            answer(id, "denied", nil, "sql", nil, nil, nil),
		"a blank name":      answer(id, "denied", " ", "sql", nil, nil, nil),
		"a long name":       answer(id, "denied", long(201), "sql", nil, nil, nil),
		"a long channel":    answer(id, "denied", "ann", long(201), nil, nil, nil),
		"a long comment":    answer(id, "denied", "ann", "sql", long(asks.MaxComment+1), nil, nil),
		"long arguments":    answer(id, "approved", "ann", "sql", nil, nil, object(256<<10+1)),
		"no JSON arguments": answer(id, "approved", "ann", "sql", nil, nil, `{"a":"\u0000"}`),
		"a long answer": answer(open(asks.KindQuestion), "answered", "ann", "sql", nil,
			text(asks.MaxAnswer+1), nil),
		"no JSON": answer(open(asks.KindQuestion), "answered", "ann", "sql", nil, "x", nil),
	} {
		want := "TK014"
		if name == "no ask" {
			want = "TK013"
		}
		if got != want {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
	_, err := h.AnswerAsk(t.Context(), id, asks.Answer{Decision: asks.Answered, By: "ann"})
	if err == nil || !strings.Contains(err.Error(), "an ask of kind approve can be approved or denied, not answered") {
		t.Errorf("an answer to an approval: %v", err)
	}
	if got := answer(id, "approved", long(200), long(200), long(asks.MaxComment), nil, object(256<<10)); got != "" {
		t.Errorf("the longest approval: %s", got)
	}
	if got := answer(open(asks.KindQuestion), "answered", "ann", nil, nil, text(asks.MaxAnswer), nil); got != "" {
		t.Errorf("the longest answer: %s", got)
	}
	if channel := storagetest.One[string](h,
		"select channel from turnkeeper.asks where state = 'answered'"); channel != "sql" {
		t.Errorf("the channel is %q", channel)
	}
}

// TestAnAnswerWaitsForItsTurn answers an ask while the row of a turn is locked, as by a write of its worker.
func TestAnAnswerWaitsForItsTurn(t *testing.T) {
	h := newEnv(t)
	other, d := h.TurnOf("desk", "w"), h.TurnOf("clerk", "w")
	for _, turn := range []*storagetest.Dispatch{other, d} {
		turn.Write(t, turnlog.Entry{Asks: []asks.Question{{
			Call: storagetest.Key(1, 1), Kind: asks.KindSettle, N: 1, Tool: "pay", Arguments: "{}",
			Terms: asks.Terms{Timeout: time.Hour},
		}}})
	}
	id := storagetest.One[asks.ID](h, "select id from turnkeeper.asks where turn_id = $1", d.Grant.TurnID)
	answer := func(ctx context.Context, db *storagetest.DB) error {
		_, err := db.AnswerAsk(ctx, id, asks.Answer{Decision: asks.Answered, Answer: asks.Happened, By: "ann",
			Channel: "test"})
		return err
	}
	unlocked := func() { h.Exec("select from turnkeeper.asks where id = $1 for update nowait", id) }
	for _, turn := range []*storagetest.Dispatch{d, other} {
		const lock = "select from turnkeeper.turns where id = $1 for no key update"
		if waits := h.WaitsBehind(unlocked, answer, lock, turn.Grant.TurnID); waits != (turn == d) {
			t.Errorf("the answer waits for turn %d: %v", turn.Grant.TurnID, waits)
		}
	}
	for decision, want := range map[asks.State]string{asks.Denied: "an ask of kind settle can be answered, not denied",
		asks.Approved: "can be answered, not approved"} {
		if _, err := h.AnswerAsk(t.Context(), id, asks.Answer{Decision: decision, By: "ann"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", decision, err)
		}
	}
}
