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

// Requests rebuilds the requests of a turn from the database. It is not safe for concurrent use.
type Requests struct {
	store  *journal.Store
	record *turnlog.Record
}

// OpenRequests reads what the requests of a turn are rebuilt from.
func OpenRequests(ctx context.Context, store *operate.Store, turn turnkeeper.TurnID) (*Requests, error) {
	journals := journal.New(store.DB)
	record, err := journals.RecordForRequest(ctx, turn)
	return &Requests{journals, record}, err
}

// Sent rebuilds the request of a round. Errors say in plain words why it cannot be rebuilt.
func (r *Requests) Sent(ctx context.Context, round int) (prompt.Sent, error) {
	sent, err := rebuild(ctx, r.store, r.record, round)
	if err != nil {
		return prompt.Sent{}, err
	}
	sent.Body = prompt.Canonical(sent.Request)
	if sent.Form != "" {
		if sent.Body, err = openai.Render(sent.Form, sent.Request); err != nil {
			return prompt.Sent{}, err
		}
	}
	sum := sha256.Sum256(sent.Body)
	sent.SHA256 = hex.EncodeToString(sum[:])
	sent.Exact = sent.SHA256 == sent.Recipe.SHA256
	return sent, nil
}

// Compare compares the request of a round with the newest one before it of its chain. It returns nil if there is none.
// Errors say in plain words why they cannot be compared.
func (r *Requests) Compare(ctx context.Context, round int) (*prompt.Comparison, error) {
	if round < 1 || round > len(r.record.Rounds) {
		return nil, prompt.ErrNoRound
	}
	turn, number, ok := prompt.Before(r.record, round)
	if !ok {
		turn, number, ok = prompt.Replaced(r.record, round)
	}
	if !ok {
		return nil, nil
	}
	after, err := rebuild(ctx, r.store, r.record, round)
	if err != nil {
		return nil, err
	}
	other, err := recordOf(ctx, r.store, r.record, turn)
	if err != nil {
		return nil, err
	}
	before, err := rebuild(ctx, r.store, other, number)
	if err != nil {
		return nil, err
	}
	c := prompt.Compare(turn, number, before.Request, after.Request)
	return &c, nil
}

// recordOf returns the record of a turn, which may be the one that is known.
func recordOf(ctx context.Context, store *journal.Store, known *turnlog.Record,
	turn turnkeeper.TurnID) (*turnlog.Record, error) {
	if turn == known.Turn.ID {
		return known, nil
	}
	return store.RecordForRequest(ctx, turn)
}

// rebuild builds the request of a round again from the turn's record. It sets the record's summary.
func rebuild(ctx context.Context, store *journal.Store, record *turnlog.Record, round int) (prompt.Sent, error) {
	definition, err := agentdef.ParseRecorded(record.Turn.Agent, record.Definition)
	if err != nil {
		return prompt.Sent{}, fmt.Errorf("the agent's definition cannot be read: %w", err)
	}
	upTo := prompt.SummaryOf(record, round)
	if record.Summary, err = store.SummaryUpTo(ctx, record.Turn, upTo); err != nil {
		return prompt.Sent{}, err
	}
	parts, err := store.RequestParts(ctx, prompt.PartsOf(record, round)...)
	if err != nil {
		return prompt.Sent{}, err
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
	other, err := recordOf(ctx, store, record, turn)
	if err != nil {
		return "", err
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
