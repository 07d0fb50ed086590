package operate

import (
	"context"
	"math"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Search selects messages or turns. Empty and zero fields do not restrict it.
type Search struct {
	Page                // Limit entries of Agent and User in State below Cursor
	Conversation string // of User; an empty User then means no user's
	// Words must occur in a message's first 20,000 characters, in any order; words "in
	// quotes" must follow each other; words with a minus must not occur. For turns, the
	// text is that of their message.
	Words        string
	ErrorClass   string    // of the turn; of a message's newest turn
	Since, Until time.Time // accepted at or after Since and before Until; turns: created
}

const (
	// maxSearched is the maximum number of messages or turns that one search reads.
	maxSearched = 10_000
	// maxIndexed is the maximum number of messages that are found by the index of words and
	// sorted. More common words are soon found by reading the newest messages.
	maxIndexed = 5000
	// clockSlack is how far the clock may have been set back without affecting searches by time.
	clockSlack = time.Hour
)

// FindMessages lists messages, newest first. It reads at most 10,000 of them, so it may find fewer
// than the limit, even none. next is the cursor to continue with, or 0 if all were read.
func (s *Views) FindMessages(ctx context.Context, f Search) (found []waiting.Message, next int64, err error) {
	p, err := s.prepare(ctx, f, s.db.Q.MessageNear)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.db.Q.FindMessages(ctx, dbsqlc.FindMessagesParams{
		Source: p.Source, Before: p.Before, FromID: p.FromID, Scan: p.Scan, Agent: p.Agent, UserName: p.UserName,
		Conversation: p.Conversation, Ids: p.Ids,
		State: p.State, Since: p.Since, Until: p.Until, Words: p.Words, ErrorClass: p.ErrorClass, MaxRows: p.MaxRows,
	})
	if err != nil {
		return nil, 0, pg.Translate(err)
	}
	found = dbrow.Map(rows, func(r dbsqlc.TurnkeeperMessage) waiting.Message {
		return waiting.Message{Message: dbrow.Message(r)}
	})
	switch {
	case len(found) == int(f.limit()):
		next = int64(found[len(found)-1].ID)
	case p.Source != sourceIDs:
		next, err = s.db.Q.LastOfMessages(ctx, dbsqlc.LastOfMessagesParams{
			Source: p.Source, Before: p.Before, FromID: p.FromID, Scan: p.Scan, Skip: p.Scan - 1, Agent: p.Agent,
			UserName: p.UserName, Conversation: p.Conversation,
		})
		if err != nil {
			return nil, 0, pg.Translate(err)
		}
	}
	if err := s.withOutcomes(ctx, found); err != nil {
		return nil, 0, err
	}
	return found, next, s.withWaits(ctx, found)
}

// withOutcomes sets the outcome of closed messages from the turns that closed them.
func (s *Views) withOutcomes(ctx context.Context, messages []waiting.Message) error {
	rows, err := s.db.Q.StatesOfTurns(ctx, dbrow.Map(messages, func(m waiting.Message) int64 {
		return int64(m.TurnID)
	}))
	if err != nil {
		return pg.Translate(err)
	}
	states := map[turnkeeper.TurnID]string{}
	for _, r := range rows {
		states[turnkeeper.TurnID(r.ID)] = r.State
	}
	for i, m := range messages {
		messages[i] = closedBy(m.Message, states[m.TurnID])
	}
	return nil
}

// FindTurns is like FindMessages for turns.
func (s *Views) FindTurns(ctx context.Context, f Search) (turns []waiting.Turn, next int64, err error) {
	p, err := s.prepare(ctx, f, s.db.Q.TurnNear)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.db.Q.FindTurns(ctx, p)
	found := dbrow.Map(rows, dbrow.Turn)
	switch {
	case err != nil:
	case len(found) == int(f.limit()):
		next = int64(found[len(found)-1].ID)
	case p.Source != sourceIDs:
		next, err = s.db.Q.LastOfTurns(ctx, dbsqlc.LastOfTurnsParams{
			Source: p.Source, Before: p.Before, FromID: p.FromID, Scan: p.Scan, Skip: p.Scan - 1, Agent: p.Agent,
			UserName: p.UserName, Conversation: p.Conversation,
		})
	}
	if err != nil {
		return nil, 0, pg.Translate(err)
	}
	turns, err = s.withTurnWaits(ctx, found)
	return turns, next, err
}

// The sources of a search.
const (
	sourceAll          = "all"
	sourceAgent        = "agent"
	sourceUser         = "user"
	sourceConversation = "conversation"
	sourceIDs          = "ids" // of messages that contain the words
)

// prepare chooses the source of a search. near returns roughly the first id at or after a time.
func (s *Views) prepare(ctx context.Context, f Search, near func(context.Context,
	time.Time) (int64, error)) (dbsqlc.FindTurnsParams, error) {
	p := dbsqlc.FindTurnsParams{
		Source: sourceAll, Agent: f.Agent, UserName: f.User, Conversation: f.Conversation, State: f.State,
		Words: pg.Storable(f.Words), ErrorClass: f.ErrorClass,
		Since: dbrow.OrNullTime(f.Since), Until: dbrow.OrNullTime(f.Until), Before: f.Cursor, Scan: s.maxSearched,
		MaxRows: f.limit(),
	}
	switch {
	case f.Agent != "" && f.Conversation != "":
		p.Source = sourceConversation
	case f.User != "":
		p.Source = sourceUser
	case f.Agent != "":
		p.Source = sourceAgent
	}
	if p.Before == 0 {
		p.Before = math.MaxInt64
	}
	if !f.Since.IsZero() {
		var err error
		if p.FromID, err = near(ctx, f.Since.Add(-clockSlack)); err != nil {
			return p, pg.Translate(err)
		}
	}
	if !f.Until.IsZero() {
		before, err := near(ctx, f.Until.Add(clockSlack))
		if err != nil {
			return p, pg.Translate(err)
		}
		p.Before = min(p.Before, before)
	}
	if p.Words != "" {
		ids, err := s.db.Q.MessagesWithWords(ctx, p.Words, maxIndexed+1)
		if err != nil {
			return p, pg.Translate(err)
		}
		if len(ids) <= maxIndexed {
			p.Source, p.Ids = sourceIDs, ids
		}
	}
	return p, nil
}

// An Exchange is a message of a conversation with its reply and calls.
type Exchange struct {
	Message waiting.Message
	Reply   *turnkeeper.Reply      // nil: none yet
	Calls   []turnkeeper.ReplyCall // of its newest turn, so far
}

// Transcript lists the exchanges of a conversation of p's agent and user, newest first, below p's cursor. next is the
// cursor to continue with, or 0 at the end.
func (s *Views) Transcript(ctx context.Context, p Page,
	conversation string) (exchanges []Exchange, next int64, err error) {
	// Messages are read first, so that the reply of a closed one is found.
	messages, next, err := s.FindMessages(ctx, Search{Page: p, Conversation: conversation})
	if err != nil {
		return nil, 0, err
	}
	ids := dbrow.Map(messages, func(m waiting.Message) int64 { return int64(m.ID) })
	rows, err := s.db.Q.RepliesOfMessages(ctx, ids)
	if err != nil {
		return nil, 0, pg.Translate(err)
	}
	replies := map[turnkeeper.MessageID]*turnkeeper.Reply{}
	for _, row := range rows {
		reply := dbrow.Reply(row)
		replies[reply.MessageID] = &reply
	}
	var open []int64
	for i, m := range messages {
		if replies[m.ID] != nil && m.ClosedAt.IsZero() { // closed in the meantime
			if messages[i], err = s.Message(ctx, m.ID); err != nil {
				return nil, 0, err
			}
		}
		if replies[m.ID] == nil {
			open = append(open, int64(m.TurnID))
		}
	}
	calls := map[turnkeeper.TurnID][]turnkeeper.ReplyCall{}
	soFar, _, err := pg.Apart(open, func(ids []int64) ([]dbsqlc.CallsSoFarRow, error) {
		return s.db.Q.CallsSoFar(ctx, ids)
	})
	if err != nil {
		return nil, 0, err
	}
	for _, row := range soFar {
		calls[turnkeeper.TurnID(row.ID)] = dbrow.ReplyCalls(row.Calls)
	}
	for _, m := range messages {
		x := Exchange{Message: m, Reply: replies[m.ID], Calls: calls[m.TurnID]}
		if x.Reply != nil {
			x.Calls = x.Reply.Calls
		}
		exchanges = append(exchanges, x)
	}
	return exchanges, next, nil
}
