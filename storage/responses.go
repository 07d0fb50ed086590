package storage

import (
	"context"
	"encoding/json"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// A Response is a message that came by the Responses API, with what became of it.
type Response struct {
	Message    turnkeeper.Message
	Previous   turnkeeper.MessageID // the response that it continues; 0: none was named
	Background bool
	Metadata   map[string]string
	TokenID    int64 // who made it; 0: somebody without a token

	Outcome    turnkeeper.TurnState // of its reply; empty: there is none yet
	Reply      string
	StopReason turnkeeper.StopReason // of its newest turn; empty while that is open
	ErrorClass string                // of its reply; empty: no error
	Calls      []turnkeeper.ReplyCall
	Usage      turnkeeper.Usage // of all its turns
}

// AcceptResponse accepts the message of a response, as Accept does a message, with
// what else is kept of it: Previous, Background, Metadata and TokenID of r, whose
// Message is not read. A repeat with the same key that is for another conversation,
// continues another response or has other metadata fails with
// turnkeeper.ErrKeyConflict; so does the key of a message that is no response.
func (s *Store) AcceptResponse(ctx context.Context, m turnkeeper.Submission, r Response) (_ turnkeeper.MessageID, repeated bool, _ error) {
	if err := m.Check(maxPostgresText); err != nil {
		return 0, false, err
	}
	if err := s.checkNames(m); err != nil {
		return 0, false, err
	}
	metadata := []byte("{}")
	if len(r.Metadata) > 0 {
		var err error
		if metadata, err = json.Marshal(r.Metadata); err != nil {
			return 0, false, err
		}
	}
	row, err := s.q.EnqueueResponse(ctx, dbsqlc.EnqueueResponseParams{
		Agent: m.Agent, Body: s.masked(m.Body), Conversation: m.Conversation, Key: orNull(m.Key), TraceParent: orNull(storable(m.TraceParent)),
		Previous: numberOrNull(int64(r.Previous)), Background: r.Background, Metadata: []byte(s.clean(string(metadata))), Token: numberOrNull(r.TokenID),
	})
	return turnkeeper.MessageID(row.ID), row.Repeated, translate(err)
}

func numberOrNull(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Response reads the response of a message, or fails with ErrNotFound: also for a
// message that came in another way.
func (s *Store) Response(ctx context.Context, id turnkeeper.MessageID) (Response, error) {
	row, err := s.q.ResponseByID(ctx, int64(id))
	if err != nil {
		return Response{}, translate(err)
	}
	r := Response{
		Message: messageOf(row.TurnkeeperMessage), Previous: turnkeeper.MessageID(orZero(row.PreviousID)), Background: row.Background,
		TokenID: orZero(row.TokenID), Outcome: turnkeeper.TurnState(row.Outcome), Reply: row.Reply, StopReason: turnkeeper.StopReason(row.StopReason),
		ErrorClass: row.ErrorClass, Calls: replyCallsOf(row.Calls),
		Usage: turnkeeper.Usage{
			InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, CachedTokens: row.CachedTokens, ReasoningTokens: row.ReasoningTokens,
		},
	}
	return r, json.Unmarshal([]byte(row.Metadata), &r.Metadata)
}
