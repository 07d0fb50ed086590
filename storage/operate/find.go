package operate

import (
	"context"
	"math"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Search selects messages or turns. What is empty or zero does not restrict it.
type Search struct {
	Page         // Limit entries of Agent in State below Cursor
	Conversation string
	// Words are words that a message's first 20,000 characters have, in any order; "in
	// quotes" one after the other; -without. For turns: those of their message.
	Words        string
	ErrorClass   string    // of the turn; of a message's newest turn
	Since, Until time.Time // accepted at or after Since and before Until; turns: created
}

const (
	// looksAt is how many messages or turns one search looks at.
	looksAt = 10_000
	// mostCommon is how many messages may have words that are looked up by those, and
	// sorted. More common ones are soon met by who looks through the newest.
	mostCommon = 5000
	// nearEnough is how far a clock may have been set back so that ids are still found by time.
	nearEnough = time.Hour
)

// FindMessages lists messages, newest first. It looks at a bounded number of them: next is the
// cursor to go on with, and 0 where all were looked at. So it may find fewer than the limit, even
// none, while next is not 0.
func (s *Views) FindMessages(ctx context.Context, f Search) (found []turnkeeper.WaitingMessage, next int64, err error) {
	p, err := s.prepare(ctx, f, s.db.Q.MessageNear)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.db.Q.FindMessages(ctx, dbsqlc.FindMessagesParams{
		Source: p.Source, Before: p.Before, FromID: p.FromID, Most: p.Most, Agent: p.Agent, Conversation: p.Conversation, Ids: p.Ids,
		State: p.State, Since: p.Since, Until: p.Until, Words: p.Words, ErrorClass: p.ErrorClass, MaxRows: p.MaxRows,
	})
	if err != nil {
		return nil, 0, pg.Translate(err)
	}
	found = dbrow.Map(rows, func(r dbsqlc.TurnkeeperMessage) turnkeeper.WaitingMessage {
		return turnkeeper.WaitingMessage{Message: dbrow.Message(r)}
	})
	switch {
	case len(found) == int(f.limit()):
		next = int64(found[len(found)-1].ID)
	case p.Source != sourceIDs:
		next, err = s.db.Q.LastOfMessages(ctx, dbsqlc.LastOfMessagesParams{
			Source: p.Source, Before: p.Before, FromID: p.FromID, Most: p.Most, Skip: p.Most - 1, Agent: p.Agent, Conversation: p.Conversation,
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

// withOutcomes adds to closed messages how the turn ended that closed them.
func (s *Views) withOutcomes(ctx context.Context, messages []turnkeeper.WaitingMessage) error {
	rows, err := s.db.Q.StatesOfTurns(ctx, dbrow.Map(messages, func(m turnkeeper.WaitingMessage) int64 { return int64(m.TurnID) }))
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

// FindTurns lists turns as FindMessages does messages.
func (s *Views) FindTurns(ctx context.Context, f Search) (found []turnkeeper.Turn, next int64, err error) {
	p, err := s.prepare(ctx, f, s.db.Q.TurnNear)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.db.Q.FindTurns(ctx, p)
	found = dbrow.Map(rows, dbrow.Turn)
	switch {
	case err != nil:
	case len(found) == int(f.limit()):
		next = int64(found[len(found)-1].ID)
	case p.Source != sourceIDs:
		next, err = s.db.Q.LastOfTurns(ctx, dbsqlc.LastOfTurnsParams{
			Source: p.Source, Before: p.Before, FromID: p.FromID, Most: p.Most, Skip: p.Most - 1, Agent: p.Agent, Conversation: p.Conversation,
		})
	}
	if err != nil {
		return nil, 0, pg.Translate(err)
	}
	return found, next, s.withHolders(ctx, found)
}

// Where a search looks.
const (
	sourceAll          = "all"
	sourceAgent        = "agent"
	sourceConversation = "conversation"
	sourceIDs          = "ids" // of messages that have the words
)

// prepare decides where to look. near finds the first id of about a time.
func (s *Views) prepare(ctx context.Context, f Search, near func(context.Context, time.Time) (int64, error)) (dbsqlc.FindTurnsParams, error) {
	p := dbsqlc.FindTurnsParams{
		Source: sourceAll, Agent: f.Agent, Conversation: f.Conversation, State: f.State, Words: pg.Storable(f.Words), ErrorClass: f.ErrorClass,
		Since: dbrow.OrNullTime(f.Since), Until: dbrow.OrNullTime(f.Until), Before: f.Cursor, Most: s.looksAt, MaxRows: f.limit(),
	}
	switch {
	case f.Agent != "" && f.Conversation != "":
		p.Source = sourceConversation
	case f.Agent != "":
		p.Source = sourceAgent
	}
	if p.Before == 0 {
		p.Before = math.MaxInt64
	}
	if !f.Since.IsZero() {
		var err error
		if p.FromID, err = near(ctx, f.Since.Add(-nearEnough)); err != nil {
			return p, pg.Translate(err)
		}
	}
	if !f.Until.IsZero() {
		before, err := near(ctx, f.Until.Add(nearEnough))
		if err != nil {
			return p, pg.Translate(err)
		}
		p.Before = min(p.Before, before)
	}
	if p.Words != "" {
		ids, err := s.db.Q.MessagesWithWords(ctx, p.Words, mostCommon+1)
		if err != nil {
			return p, pg.Translate(err)
		}
		if len(ids) <= mostCommon {
			p.Source, p.Ids = sourceIDs, ids
		}
	}
	return p, nil
}

// An Exchange is a message of a conversation with what it came to.
type Exchange struct {
	Message turnkeeper.WaitingMessage
	Reply   *turnkeeper.Reply      // nil: none yet
	Calls   []turnkeeper.ReplyCall // of its newest turn, so far
}

// Transcript lists the exchanges of a conversation, newest first, below p's cursor. next is the
// cursor to go on with; 0: that was all.
func (s *Views) Transcript(ctx context.Context, p Page, conversation string) (exchanges []Exchange, next int64, err error) {
	// Messages first: one that is closed by then has its reply.
	messages, next, err := s.FindMessages(ctx, Search{Page: p, Conversation: conversation})
	if err != nil {
		return nil, 0, err
	}
	ids := dbrow.Map(messages, func(m turnkeeper.WaitingMessage) int64 { return int64(m.ID) })
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
		if replies[m.ID] != nil && m.ClosedAt.IsZero() { // it was closed meanwhile
			if messages[i], err = s.Message(ctx, m.ID); err != nil {
				return nil, 0, err
			}
		}
		if replies[m.ID] == nil && m.TurnID != 0 {
			open = append(open, int64(m.TurnID))
		}
	}
	calls := map[turnkeeper.TurnID][]turnkeeper.ReplyCall{}
	soFar, err := s.db.Q.CallsSoFar(ctx, open)
	if err != nil {
		return nil, 0, pg.Translate(err)
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
