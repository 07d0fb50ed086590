package setup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
)

// A SentRequest is a request that was sent to a model, rebuilt from the database.
type SentRequest struct {
	Turn   turnkeeper.TurnID
	Round  int
	Recipe turnkeeper.Recipe
	Body   []byte // body sent to the endpoint; for a provider without an endpoint, the request as JSON
	SHA256 string // of Body
	Exact  bool   // Body is identical to the sent one
}

// RebuildRequest rebuilds the request of a round. Errors say in plain words why it cannot be rebuilt.
func RebuildRequest(ctx context.Context, store *operate.Store, turn turnkeeper.TurnID, round int) (SentRequest, error) {
	record, err := journal.New(store.DB).RecordForRequest(ctx, turn)
	if err != nil {
		return SentRequest{}, err
	}
	rebuilt, err := rebuild(ctx, journal.New(store.DB), record, round)
	if err != nil {
		return SentRequest{}, err
	}
	body := prompt.Canonical(rebuilt.Request)
	if rebuilt.Form != "" {
		if body, err = openai.Render(rebuilt.Form, rebuilt.Request); err != nil {
			return SentRequest{}, err
		}
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	return SentRequest{
		Turn: turn, Round: round, Recipe: rebuilt.Recipe, Body: body, SHA256: hash,
		Exact: hash == rebuilt.Recipe.SHA256,
	}, nil
}

// rebuild builds the request of a round again from the turn's record. It sets the record's summary.
func rebuild(ctx context.Context, store *journal.Store, record *turnlog.Record, round int) (prompt.Rebuilt, error) {
	definition, err := agentdef.ParseRecorded(record.Turn.Agent, record.Definition)
	if err != nil {
		return prompt.Rebuilt{}, fmt.Errorf("the agent's definition cannot be read: %w", err)
	}
	upTo := prompt.SummaryOf(record, round)
	if record.Summary, err = store.SummaryUpTo(ctx, record.Turn, upTo); err != nil {
		return prompt.Rebuilt{}, err
	}
	parts, err := store.RequestParts(ctx, prompt.PartsOf(record, round)...)
	if err != nil {
		return prompt.Rebuilt{}, err
	}
	return prompt.Rebuild(record, definition.WithAnswerLimit(record.AnswerLimit), round, parts)
}

// checkedTurns is the number of turns whose requests CheckRequests rebuilds: the most that Turns lists.
const checkedTurns = 100

// CheckRequests checks that the requests of the newest turns extend those before them in their epochs. It leaves out a
// request that cannot be rebuilt, for example because what it showed is deleted.
func CheckRequests(ctx context.Context, store *operate.Store) (operate.Promise, error) {
	p := operate.Promise{Text: fmt.Sprintf(
		"within an epoch each request extends the one before it (those of the newest %d turns)", checkedTurns)}
	journals := journal.New(store.DB)
	turns, err := store.Turns(ctx, operate.Page{Limit: checkedTurns})
	if err != nil {
		return p, err
	}
	for _, turn := range turns {
		if turn.InferenceRounds == 0 {
			continue // and perhaps it was never granted
		}
		record, err := journals.RecordForRequest(ctx, turn.ID)
		if errors.Is(err, turnkeeper.ErrNotFound) || errors.Is(err, journal.ErrNewerJournal) {
			continue
		}
		if err != nil {
			return p, err
		}
		for n := range record.Rounds {
			why, err := unlikeBefore(ctx, journals, record, n+1)
			switch {
			case err != nil:
				return p, err
			case why == "":
			case len(p.Broken) == operate.MaxBroken:
				p.More = true
				return p, nil
			default:
				p.Broken = append(p.Broken, fmt.Sprintf("turn %d round %d: %s", turn.ID, n+1, why))
			}
		}
	}
	return p, nil
}

// unlikeBefore says where the request of a round does not extend the one before it. Empty: it does, or there is none.
func unlikeBefore(ctx context.Context, store *journal.Store, record *turnlog.Record, round int) (string, error) {
	turn, number, ok := prompt.Before(record, round)
	if !ok {
		return "", ctx.Err()
	}
	other := record
	if turn != record.Turn.ID {
		var err error
		if other, err = store.RecordForRequest(ctx, turn); err != nil {
			return "", err
		}
	}
	after, err := rebuild(ctx, store, record, round)
	if err != nil {
		return "", ctx.Err() // perhaps it is purged
	}
	before, err := rebuild(ctx, store, other, number)
	if err != nil {
		return "", ctx.Err()
	}
	return prompt.Difference(before.Request, after.Request), nil
}
