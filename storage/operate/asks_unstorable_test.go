package operate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// What Postgres cannot store or read as JSON is an invalid answer, not a failure of the database.
func TestAnswersThatCannotBeStored(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	q := asks.Question{
		Call: storagetest.Key(1, 1), Kind: asks.KindApprove, N: 1, Tool: "pay", Arguments: "{}",
		Terms: asks.Terms{Timeout: time.Hour},
	}
	if err := d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce),
		Asks: []asks.Question{q}}, turnlog.Consequence{}); err != nil {
		t.Fatal(err)
	}
	id := storagetest.One[asks.ID](h.DB, "select id from turnkeeper.asks")
	yes := asks.Answer{Decision: asks.Approved, By: "ann", Channel: "test"}
	for _, edited := range []string{`{"n":1e200000}`, `{"n":"\u0000"}`, `{"n":`, `{"n":` + strings.Repeat("[",
		100_000) + strings.Repeat("]", 100_000) + `}`} {
		a := yes
		a.Edited = edited
		if _, err := h.AnswerAsk(t.Context(), id, a); !errors.Is(err, asks.ErrInvalid) {
			t.Errorf("%.20s: %v", edited, err)
		}
	}
	a := yes
	a.Hash = "\xff"
	if _, err := h.AnswerAsk(t.Context(), id, a); !errors.Is(err, asks.ErrInvalid) {
		t.Errorf("a hash that is no text: %v", err)
	}
	if _, err := h.AnswerAsk(t.Context(), id, yes); err != nil {
		t.Error(err)
	}
}
