package operate

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Response is a message that was sent by the Responses API, with its outcome.
type Response struct {
	Message         turnkeeper.Message
	Previous        turnkeeper.MessageID // the response that it continues; 0: none was named
	Background      bool
	Drafts          bool // its stream has what the model writes before that is the reply
	Metadata        map[string]string
	Instructions    *string // of the request; nil: none
	MaxOutputTokens int     // of the request; 0: none
	Preface         int     // bytes of the message's body before the sender's own text
	TokenID         int64   // of the client that sent it; 0: it had no token

	Outcome    turnkeeper.TurnState // of its reply; empty: there is none yet
	Reply      string
	StopReason turnkeeper.StopReason // of its newest turn; empty while that is open
	ErrorClass string                // of its reply; empty: no error
	Calls      []turnkeeper.ReplyCall
	Labels     []string // of its reply
	// why the last answer of the reply's turn ended, as the provider says; empty: there is none
	Finish string
	Usage  turnkeeper.Usage // of all its turns
}

// Sent returns the sender's own text: the body of the message without the preface.
func (r Response) Sent() string { return sent(r.Message.Body, r.Preface) }

func sent(body string, preface int) string { return body[min(preface, len(body)):] }

// A NewResponse is a request to the Responses API.
type NewResponse struct {
	Submission turnkeeper.Submission // its body is the sender's own text
	// text of the sender that goes before the body: instructions, an imported history
	Preface         string
	Previous        turnkeeper.MessageID // 0: none
	Background      bool
	Drafts          bool
	Metadata        map[string]string
	Instructions    *string
	MaxOutputTokens int
	TokenID         int64
	Request         [32]byte // a repeat with the same key must have the same
	History         []byte   // hash of what the client knows of the conversation, this message included; nil: not all
	// Follows is the newest message of the conversation as it was read; 0: there was none. If another one came since, a
	// Strict request fails with turnkeeper.ErrWrongState, and another one is stored without History.
	Follows turnkeeper.MessageID
	Strict  bool
	// Words are what the body and the preface are made of: the message gets their labels, and those of replies that one
	// of them is.
	Words []Words
}

// Words are a text with its labels.
type Words struct {
	Text            string
	Labels, Sources []string // of the same length
}

// A Head is the newest message of a conversation.
type Head struct {
	Message      turnkeeper.MessageID
	Conversation string
	History      []byte               // see NewResponse; nil: its client does not know all of the conversation
	Outcome      turnkeeper.TurnState // empty: it is open
	Reply        string
}

// AcceptResponse accepts the message of a response, as Accept does. A repeat with the same key fails with
// turnkeeper.ErrKeyConflict if its Request differs, or if the first message with this key is not a response.
func (s *Responses) AcceptResponse(ctx context.Context, n NewResponse) (turnkeeper.MessageID, error) {
	if err := s.inbox.CheckSubmission(n.Submission); err != nil {
		return 0, err
	}
	id, err := s.enqueue(ctx, n)
	// the same request may have been accepted meanwhile, for another conversation
	if errors.Is(err, turnkeeper.ErrKeyConflict) {
		id, err = s.enqueue(ctx, n)
	}
	return id, err
}

func (s *Responses) enqueue(ctx context.Context, n NewResponse) (turnkeeper.MessageID, error) {
	m, preface := n.Submission, s.db.Masked(n.Preface)
	kept, err := json.Marshal(map[string]any{
		"previous_id": dbrow.OrNullNumber(int64(n.Previous)), "background": n.Background, "drafts": n.Drafts,
		"preface":  len(preface),
		"metadata": s.cleanPairs(n.Metadata), "instructions": s.cleanText(n.Instructions),
		"max_output_tokens": dbrow.OrNullNumber(int64(n.MaxOutputTokens)),
		"request_sha256":    bytesOf(n.Request[:]), "history_sha256": bytesOf(n.History),
	})
	if err != nil {
		return 0, err
	}
	texts, labels, sources := s.wordsOf(n.Words)
	id, err := s.db.Q.EnqueueResponse(ctx, dbsqlc.EnqueueResponseParams{
		Agent: m.Agent, UserName: m.User, Body: preface + s.db.Masked(m.Body), Conversation: m.Conversation,
		Key:         dbrow.OrNull(m.Key),
		TraceParent: dbrow.OrNull(pg.Storable(m.TraceParent)), Token: dbrow.OrNullNumber(n.TokenID),
		Response: kept, Follows: int64(n.Follows), Strict: n.Strict, Texts: texts, Labels: labels, Sources: sources,
	})
	return turnkeeper.MessageID(id), pg.Translate(err)
}

// wordsOf returns the texts as they are stored in replies, and all labels with their sources.
func (s *Responses) wordsOf(all []Words) (texts, labels, sources []string) {
	texts, labels, sources = []string{}, []string{}, []string{}
	for _, w := range all {
		texts = append(texts, s.db.Clean(w.Text))
		labels, sources = append(labels, w.Labels...), append(sources, w.Sources...)
	}
	return texts, labels, sources
}

// bytesOf returns bytes as JSON holds them for Postgres; nil: null.
func bytesOf(b []byte) any {
	if b == nil {
		return nil
	}
	return `\x` + hex.EncodeToString(b)
}

func (s *Responses) cleanText(text *string) *string {
	if text == nil {
		return nil
	}
	return new(s.db.Clean(*text))
}

func (s *Responses) cleanPairs(pairs map[string]string) map[string]string {
	clean := map[string]string{}
	for name, value := range pairs {
		clean[s.db.Clean(name)] = s.db.Clean(value)
	}
	return clean
}

// Response reads the response of a message, or fails with ErrNotFound, also for a
// message that was not sent by the Responses API.
func (s *Responses) Response(ctx context.Context, id turnkeeper.MessageID) (Response, error) {
	row, err := s.db.Q.ResponseByID(ctx, int64(id))
	if err != nil {
		return Response{}, pg.Translate(err)
	}
	r := Response{
		Message: dbrow.Message(row.TurnkeeperMessage), Previous: turnkeeper.MessageID(dbrow.OrZero(row.PreviousID)),
		Background: row.Background,
		Drafts:     row.Drafts, Instructions: row.Instructions, MaxOutputTokens: int(dbrow.OrZero(row.MaxOutputTokens)),
		Preface: int(row.Preface),
		TokenID: row.TokenID, Outcome: turnkeeper.TurnState(row.Outcome), Reply: row.Reply,
		StopReason: turnkeeper.StopReason(row.StopReason),
		ErrorClass: row.ErrorClass, Calls: dbrow.ReplyCalls(row.Calls), Labels: row.Labels, Finish: row.FinishReason,
		Usage: turnkeeper.Usage{
			InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, CachedTokens: row.CachedTokens,
			CacheWriteTokens: row.CacheWriteTokens, ReasoningTokens: row.ReasoningTokens,
		},
	}
	return r, json.Unmarshal([]byte(row.Metadata), &r.Metadata)
}

// HeadsWithHistory returns the newest responses of the agent and user whose clients knew exactly this history, and that
// are the newest message of their conversation; at most 50.
func (s *Responses) HeadsWithHistory(ctx context.Context, key turnkeeper.ConversationKey,
	history []byte) ([]Head, error) {
	rows, err := s.db.Q.ResponsesWithHistory(ctx, history, key.Agent, key.User)
	if err != nil {
		return nil, pg.Translate(err)
	}
	heads := make([]Head, len(rows))
	for i, row := range rows {
		heads[i] = headOf(dbsqlc.NewestMessageRow(row))
	}
	return heads, nil
}

// HeadOf returns the newest message of a conversation; the zero Head: it has none.
func (s *Responses) HeadOf(ctx context.Context, key turnkeeper.ConversationKey) (Head, error) {
	rows, err := s.db.Q.NewestMessage(ctx, key.Agent, key.User, key.Name)
	if err != nil || len(rows) == 0 {
		return Head{}, pg.Translate(err)
	}
	return headOf(rows[0]), nil
}

func headOf(row dbsqlc.NewestMessageRow) Head {
	return Head{turnkeeper.MessageID(row.ID), row.Conversation, row.HistorySha256,
		turnkeeper.TurnState(row.Outcome), row.Reply}
}

// A Said is what was said in a response.
type Said struct {
	Sent  Words // the sender's own text
	Reply Words // empty: there is none yet
}

// Saids reads what was said in those of the responses that are in conversations of the agent and user.
func (s *Responses) Saids(ctx context.Context, key turnkeeper.ConversationKey,
	ids []turnkeeper.MessageID) (map[turnkeeper.MessageID]Said, error) {
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		numbers[i] = int64(id)
	}
	rows, err := s.db.Q.ResponseTexts(ctx, numbers, key.Agent, key.User)
	if err != nil {
		return nil, pg.Translate(err)
	}
	all := map[turnkeeper.MessageID]Said{}
	for _, row := range rows {
		all[turnkeeper.MessageID(row.ID)] = Said{
			Sent: Words{sent(row.Body, int(row.Preface)), row.Labels, row.Sources}, Reply: Words{row.Reply,
				row.ReplyLabels, row.ReplySources},
		}
	}
	return all, nil
}

// A Created is a conversation that was created before its first message.
type Created struct {
	ID       string
	Metadata map[string]string
	Items    json.RawMessage // a list: what the client says was said before; empty once a message has it
	At       time.Time
}

// ErrTooManyConversations means that a sender has created as many conversations without a message as are allowed.
var ErrTooManyConversations = errors.New(
	"this client has created 1000 conversations that have no message, which is the limit: use them, or wait; unused ones are deleted after 30 days")

// unusedLast is how long a created conversation without a message is kept.
const unusedLast = 30 * 24 * time.Hour

// ForgetConversations deletes the conversations that were created 30 days ago and have no message.
func (s *Responses) ForgetConversations(ctx context.Context) error {
	return pg.Translate(s.db.Q.ForgetConversations(ctx, unusedLast))
}

// CreateConversation stores a conversation of a sender, and returns when; at most 1,000 without a message.
func (s *Responses) CreateConversation(ctx context.Context, c Created, token int64, user string) (time.Time, error) {
	metadata, err := json.Marshal(s.cleanPairs(c.Metadata))
	if err != nil {
		return time.Time{}, err
	}
	at, err := s.db.Q.CreateConversation(ctx, dbsqlc.CreateConversationParams{
		ID: c.ID, Token: dbrow.OrNullNumber(token), UserName: user, Metadata: metadata,
		Items: []byte(s.db.Clean(string(c.Items))),
	})
	if err == nil && at.Unix() == 0 {
		err = ErrTooManyConversations
	}
	return at, pg.Translate(err)
}

// CreatedConversation reads a conversation that this sender has created, or fails with ErrNotFound.
func (s *Responses) CreatedConversation(ctx context.Context, id string, token int64, user string) (Created, error) {
	row, err := s.db.Q.ConversationByID(ctx, id, dbrow.OrNullNumber(token), user)
	if err != nil {
		return Created{}, pg.Translate(err)
	}
	c := Created{ID: id, Items: json.RawMessage(row.Items), At: row.CreatedAt}
	return c, json.Unmarshal([]byte(row.Metadata), &c.Metadata)
}
