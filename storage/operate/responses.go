package operate

import (
	"context"
	"encoding/json"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Response is a message that was sent by the Responses API, with its outcome.
type Response struct {
	Message    turnkeeper.Message
	Previous   turnkeeper.MessageID // the response that it continues; 0: none was named
	Background bool
	Metadata   map[string]string
	TokenID    int64 // of the client that sent it; 0: it had no token

	Outcome    turnkeeper.TurnState // of its reply; empty: there is none yet
	Reply      string
	StopReason turnkeeper.StopReason // of its newest turn; empty while that is open
	ErrorClass string                // of its reply; empty: no error
	Calls      []turnkeeper.ReplyCall
	Labels     []string         // of its reply
	Usage      turnkeeper.Usage // of all its turns
}

// AcceptResponse accepts the message of a response, as Accept does, and stores Previous,
// Background, Metadata and TokenID of r; it does not read r.Message. A repeat with the
// same key fails with turnkeeper.ErrKeyConflict if it is for another conversation,
// continues another response or has other metadata, or if the first message with this
// key is not a response.
func (s *Responses) AcceptResponse(ctx context.Context, m turnkeeper.Submission, r Response) (turnkeeper.MessageID, error) {
	if err := s.inbox.CheckSubmission(m); err != nil {
		return 0, err
	}
	metadata := []byte("{}")
	if len(r.Metadata) > 0 {
		var err error
		if metadata, err = json.Marshal(r.Metadata); err != nil {
			return 0, err
		}
	}
	id, err := s.db.Q.EnqueueResponse(ctx, dbsqlc.EnqueueResponseParams{
		Agent: m.Agent, UserName: m.User, Body: s.db.Masked(m.Body), Conversation: m.Conversation, Key: dbrow.OrNull(m.Key), TraceParent: dbrow.OrNull(pg.Storable(m.TraceParent)),
		Previous: dbrow.OrNullNumber(int64(r.Previous)), Background: r.Background, Metadata: []byte(s.db.Clean(string(metadata))), Token: dbrow.OrNullNumber(r.TokenID),
	})
	return turnkeeper.MessageID(id), pg.Translate(err)
}

// Response reads the response of a message, or fails with ErrNotFound, also for a
// message that was not sent by the Responses API.
func (s *Responses) Response(ctx context.Context, id turnkeeper.MessageID) (Response, error) {
	row, err := s.db.Q.ResponseByID(ctx, int64(id))
	if err != nil {
		return Response{}, pg.Translate(err)
	}
	r := Response{
		Message: dbrow.Message(row.TurnkeeperMessage), Previous: turnkeeper.MessageID(dbrow.OrZero(row.PreviousID)), Background: row.Background,
		TokenID: row.TokenID, Outcome: turnkeeper.TurnState(row.Outcome), Reply: row.Reply, StopReason: turnkeeper.StopReason(row.StopReason),
		ErrorClass: row.ErrorClass, Calls: dbrow.ReplyCalls(row.Calls), Labels: row.Labels,
		Usage: turnkeeper.Usage{
			InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, CachedTokens: row.CachedTokens, ReasoningTokens: row.ReasoningTokens,
		},
	}
	return r, json.Unmarshal([]byte(row.Metadata), &r.Metadata)
}
