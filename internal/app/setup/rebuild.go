package setup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference/openai"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
)

// A SentRequest is a request that was sent to a model, rebuilt from the database.
type SentRequest struct {
	Turn   turnkeeper.TurnID
	Round  int
	Recipe turnkeeper.Recipe
	Start  turnkeeper.Epoch // of its epoch
	Body   []byte           // body sent to the endpoint; for a provider without an endpoint, the request as JSON
	SHA256 string           // of Body
	Exact  bool             // Body is identical to the sent one
}

// RebuildRequest rebuilds the request of a round. Errors say in plain words why it cannot be rebuilt.
func RebuildRequest(ctx context.Context, store *operate.Store, turn turnkeeper.TurnID, round int) (SentRequest, error) {
	record, err := journal.New(store.DB).RecordForRequest(ctx, turn)
	if err != nil {
		return SentRequest{}, err
	}
	upTo := prompt.SummaryOf(record, round)
	if record.Summary, err = journal.New(store.DB).SummaryUpTo(ctx, record.Turn, upTo); err != nil {
		return SentRequest{}, err
	}
	definition, err := agentdef.ParseRecorded(record.Turn.Agent, record.Definition)
	if err != nil {
		return SentRequest{}, fmt.Errorf("the agent's definition cannot be read: %w", err)
	}
	parts, err := journal.New(store.DB).RequestParts(ctx, prompt.PartsOf(record, round)...)
	if err != nil {
		return SentRequest{}, err
	}
	rebuilt, err := prompt.Rebuild(record, definition.WithAnswerLimit(record.AnswerLimit), round, parts)
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
		Turn: turn, Round: round, Recipe: rebuilt.Recipe, Start: rebuilt.Start, Body: body, SHA256: hash,
		Exact: hash == rebuilt.Recipe.SHA256,
	}, nil
}
