package httpapi_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// A standIn is a store without a database. It notes how it is called, and returns values that are filled: rows of every
// kind. What has an id above 99 does not exist.
type standIn struct {
	// before is called before each call, with the number of calls of the request so far. An error is returned in place
	// of the values.
	before func(ctx context.Context, n int, method string) error
	events func(turn turnkeeper.TurnID) []turnkeeper.Event
	states func(id turnkeeper.MessageID) waiting.Message
	goesOn func(*operate.Response) // changes a response that is under way; nil: it does not

	mu    sync.Mutex
	calls []string          // since take
	asked []context.Context // of the calls since lasting
}

// A requestKey is the key of a value of the context of each recorded request.
type requestKey struct{}

func (s *standIn) does(ctx context.Context, method string, args ...any) error {
	var texts []string
	for _, arg := range args {
		texts = append(texts, brief(reflect.ValueOf(arg)))
	}
	call := method + "(" + strings.Join(texts, ", ") + ")"
	if ctx.Value(requestKey{}) == nil {
		call += " outside the request's context"
	}
	if end, ok := ctx.Deadline(); ok {
		call += " within " + time.Until(end).String()
	}
	s.mu.Lock()
	n := len(s.calls)
	s.calls, s.asked = append(s.calls, call), append(s.asked, ctx)
	s.mu.Unlock()
	if s.before != nil {
		return s.before(ctx, n, method)
	}
	return nil
}

// take returns the calls since the last take.
func (s *standIn) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// lasting returns the number of calls since its last call whose context has not ended.
func (s *standIn) lasting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ctx := range s.asked {
		if ctx.Err() == nil {
			n++
		}
	}
	s.asked = nil
	return n
}

func told[V any](ctx context.Context, s *standIn, method string, args ...any) (v V, err error) {
	if err := s.does(ctx, method, args...); err != nil {
		return v, err
	}
	return filled[V](), nil
}

func toldTwo[V, W any](ctx context.Context, s *standIn, method string, args ...any) (v V, w W, err error) {
	if err := s.does(ctx, method, args...); err != nil {
		return v, w, err
	}
	return filled[V](), filled[W](), nil
}

// brief writes a value without its zero fields.
func brief(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UTC().Format("02 15:04:05")
	case time.Duration:
		return x.String()
	case []byte:
		return hex.EncodeToString(x[:min(len(x), 6)])
	case [32]byte:
		return hex.EncodeToString(x[:6])
	}
	var parts []string
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				parts = append(parts, v.Type().Field(i).Name+":"+brief(v.Field(i)))
			}
		}
		return "{" + strings.Join(parts, " ") + "}"
	case reflect.Slice:
		for i := range v.Len() {
			parts = append(parts, brief(v.Index(i)))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case reflect.Pointer:
		return "&" + brief(v.Elem())
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(v.Interface())
}

// callers are the tokens of the stand-in, by their secret.
var callers = map[string]operate.Token{
	"all": {ID: 1, Name: "all", Scopes: everything}, "clerk": {ID: 2, Name: "clerk", Scopes: everything,
		Agents: []string{"clerk"}},
	"both": {ID: 3, Name: "both", Scopes: everything, Agents: []string{"clerk", "desk"}}, "anna": {ID: 4, Name: "anna",
		Scopes: everything, User: "anna"},
	"send": {ID: 5, Name: "send", Scopes: []string{"send"}}, "answer": {ID: 6, Name: "answer",
		Scopes: []string{"answer"}},
	"read": {ID: 7, Name: "read", Scopes: []string{"read"}}, "desk": {ID: 8, Name: "desk", Scopes: everything,
		Agents: []string{"desk"}},
	"ann": {ID: 9, Name: "ann", Scopes: []string{"read", "answer"}},
}

func caller(secret string) (operate.Token, error) {
	token, known := callers[secret]
	if !known {
		return token, turnkeeper.ErrNotFound
	}
	return token, nil
}

func (s *standIn) FindToken(ctx context.Context, secret string) (operate.Token, error) {
	if err := s.does(ctx, "FindToken", secret); err != nil {
		return operate.Token{}, err
	}
	return caller(secret)
}

func (s *standIn) FindSession(ctx context.Context, session string) (operate.Token, error) {
	if err := s.does(ctx, "FindSession", session); err != nil {
		return operate.Token{}, err
	}
	return caller(strings.TrimPrefix(session, "ts_"))
}

func (s *standIn) SignIn(ctx context.Context, secret string, lifetime time.Duration) (operate.Token, string, error) {
	if err := s.does(ctx, "SignIn", secret, lifetime); err != nil {
		return operate.Token{}, "", err
	}
	token, err := caller(secret)
	return token, "ts_" + secret, err
}

// single is told for what has an id.
func single[V any, I ~int64](ctx context.Context, s *standIn, method string, id I, change func(*V)) (v V, err error) {
	if err := s.does(ctx, method, id); err != nil {
		return v, err
	}
	if id > 99 {
		return v, turnkeeper.ErrNotFound
	}
	v = filled[V]()
	change(&v)
	return v, nil
}

// stateOf returns a message in the state of its id: 1 to 6, and 7 to 12, which are messages to sub-agents.
func stateOf(m *turnkeeper.Message, id turnkeeper.MessageID) {
	states := choices["turnkeeper.MessageState"]
	m.ID, m.Agent, m.User, m.State = id, "clerk", "anna", turnkeeper.MessageState(states[(int(id)-1)%len(states)])
	if m.Outcome = turnkeeper.TurnState(m.State); (id-1)%6 < 2 {
		m.Outcome, m.ClosedAt = "", time.Time{}
	}
	if id > 6 {
		m.SentBy = "turn:7"
	}
}

func (s *standIn) message(ctx context.Context, method string, id turnkeeper.MessageID) (waiting.Message, error) {
	return single(ctx, s, method, id, func(m *waiting.Message) {
		stateOf(&m.Message, id)
		if !m.ClosedAt.IsZero() {
			m.Waits = nil
		}
	})
}

func (s *standIn) Message(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error) {
	return s.message(ctx, "Message", id)
}

func (s *standIn) WaitingMessage(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error) {
	return s.message(ctx, "WaitingMessage", id)
}

func (s *standIn) ReplyTo(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Reply, error) {
	r, err := single(ctx, s, "ReplyTo", id, func(r *turnkeeper.Reply) { r.MessageID = id })
	if err == nil && (id-1)%6 < 2 {
		return r, turnkeeper.ErrNotFound
	}
	return r, err
}

func (s *standIn) WhoseTurn(ctx context.Context, id turnkeeper.TurnID) (turnkeeper.ConversationKey, error) {
	return single(ctx, s, "WhoseTurn", id, func(k *turnkeeper.ConversationKey) {
		*k = turnkeeper.ConversationKey{Agent: "clerk", User: "anna", Name: "main"}
	})
}

// ViewTurn returns a turn in the state of its id, 1 to 7. Those from 8 on have nothing that a turn may lack.
func (s *standIn) ViewTurn(ctx context.Context, id turnkeeper.TurnID) (operate.TurnView, error) {
	return single(ctx, s, "ViewTurn", id, func(v *operate.TurnView) {
		states := choices["turnkeeper.TurnState"]
		t := &v.Turn
		t.ID, t.Agent, t.User, t.State = id, "clerk", "anna", turnkeeper.TurnState(states[(int(id)-1)%len(states)])
		v.Message.TurnID, v.Rounds[0].Number, v.Rounds[1].Number, v.Failed[0].Round, v.Failed[1].Round = id, 1, 2, 1, 3
		if !t.State.Terminal() {
			t.EndedAt, v.Reply, v.Dispatches[1].EndedAt, v.Dispatches[1].Outcome = time.Time{}, nil, time.Time{}, ""
			v.Message.State, v.Message.Outcome, v.Message.ClosedAt = turnkeeper.MessageRunning, "", time.Time{}
		} else {
			stateOf(&v.Message.Message, turnkeeper.MessageID(id-1))
			v.Message.Waits = nil
		}
		if s.events != nil {
			t.LastSeq = int64(len(s.events(id)))
		}
		if t.State != turnkeeper.TurnRunning {
			t.UnderWay, t.Silence = nil, nil
		}
		v.Tree.Agent, v.Tree.SubAgents[0].Parent, v.Tree.SubAgents[1].Parent = "clerk", v.Tree.Root,
			v.Tree.SubAgents[0].Turn
		switch id {
		case 1:
			v.Rounds, v.Failed, v.Outputs, v.Refused, v.Awaited, v.End, v.Tree, v.Waited = nil, nil, nil, nil,
				nil, nil, nil, nil
			t.EventsExpiredAt, t.LeasesExpiredAt, t.DueAt = time.Time{}, time.Time{}, time.Time{}
		case 4, 6: // what may be missing of sub-agents
			v.Tree.SubAgents[0].Message, v.Tree.SubAgents[1].State, v.Tree.SubAgents[1].TurnState = 0, "", ""
			v.Tree.State, v.Tree.SubAgents[1].Parent = "", v.Tree.Root
		case 5:
			v.Tree.Root, v.Tree.SubAgents[1].Failure, v.Tree.SubAgents[1].Dropped, v.Tree.SubAgents[1].EndedAt = id, "",
				true, time.Time{}
		case 7:
			v.Tree.SubAgents[1].Agent, v.Tree.SubAgents[1].Turn, v.Tree.Limits = "desk", id, turnlog.TreeLimits{}
		}
	})
}

// output returns a text, bytes, or one whose content retention has deleted.
func (s *standIn) output(ctx context.Context, method string, id turnkeeper.OutputID) (o turnkeeper.Output, err error) {
	if err := s.does(ctx, method, id); err != nil {
		return o, err
	}
	o = filled[turnkeeper.Output]()
	o.ID, o.Bytes, o.Chars, o.Drafted = id, nil, 10, false
	switch id {
	case "text":
		o.ExpiredAt = time.Time{}
	case "bytes":
		o.ExpiredAt, o.Bytes = time.Time{}, []byte("0123456789")
	case "gone":
	default:
		return turnkeeper.Output{}, turnkeeper.ErrNotFound
	}
	return o, nil
}

func (s *standIn) FindOutput(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	return s.output(ctx, "FindOutput", id)
}

func (s *standIn) Output(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	return s.output(ctx, "Output", id)
}

func (s *standIn) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from,
	to int64) (string, error) {
	if err := s.does(ctx, "ReadOutput", turn, id, from, to); err != nil {
		return "", err
	}
	return "0123456789"[min(from, 10):min(max(from, to), 10)], nil
}

// Ask returns an ask of the kind of its id: 1 to 6 open, from 7 on in the other states.
func (s *standIn) Ask(ctx context.Context, id asks.ID) (operate.Ask, error) {
	return single(ctx, s, "Ask", id, func(a *operate.Ask) {
		kinds, states := choices["asks.Kind"], choices["asks.State"]
		a.ID, a.Agent, a.User, a.Kind, a.State = id, "clerk", "anna",
			asks.Kind(kinds[(int(id)-1)%len(kinds)]), asks.Open
		a.Arguments, a.Schema, a.Hash, a.Audience = `{"amount":900,"to":"асme"}`, "", "hash", []string{"ann", "bob"}
		if a.Kind == asks.KindQuestion || a.Kind == asks.KindSettle || a.Kind == asks.KindInput {
			a.Schema = `{"enum":["blue","red"]}`
		}
		if id > 6 {
			a.State, a.Edited, a.Answer = asks.State(states[int(id-6)%len(states)]),
				`{"amount":90,"to":"acme"}`, `"blue"`
			return
		}
		a.ClosedAt, a.AnsweredBy, a.Channel, a.Comment, a.Answer, a.Edited, a.EditedHash, a.CallState,
			a.NotRun = time.Time{}, "", "", "", "", "", "", "", ""
	})
}

// Response returns a response: 1 waits, 2 is worked on, and the others have the outcomes of a turn.
func (s *standIn) Response(ctx context.Context, id turnkeeper.MessageID) (operate.Response, error) {
	return single(ctx, s, "Response", id, func(r *operate.Response) {
		stateOf(&r.Message, id)
		r.TokenID, r.Preface, r.Drafts, r.Message.Body = 1, 4, false, "prefbody"
		if r.Outcome = r.Message.Outcome; r.Outcome == "" {
			r.Message.Attempts, r.Reply, r.StopReason = int(id-1)%6, "", ""
		}
		if id > 6 {
			r.Previous, r.Instructions, r.MaxOutputTokens, r.Metadata, r.Finish, r.Labels, r.Calls = 0, nil, 0,
				nil, "", nil, nil
		}
		if s.goesOn != nil {
			s.goesOn(r)
		}
	})
}

func (s *standIn) CreatedConversation(ctx context.Context, id string, token int64,
	user string) (c operate.Created, err error) {
	if err := s.does(ctx, "CreatedConversation", id, token, user); err != nil {
		return c, err
	}
	c = filled[operate.Created]()
	c.ID, c.Items = id,
		[]byte(`[{"type":"message","role":"user","content":"first"},{"role":"assistant","content":"second"}]`)
	if id == "none" {
		return c, turnkeeper.ErrNotFound
	}
	return c, nil
}

// AcceptFrom has accepted before what has a key.
func (s *standIn) AcceptFrom(ctx context.Context, from storage.Sender,
	m turnkeeper.Submission) (turnkeeper.MessageID, bool, error) {
	err := s.does(ctx, "AcceptFrom", from, m)
	if err == nil && m.Agent == "ghost" {
		err = fmt.Errorf("%w %q: there are clerk, desk", turnkeeper.ErrUnknownAgent, m.Agent)
	}
	if m.Body == "answered" {
		return 3, m.Key != "", err
	}
	return 1, m.Key != "", err
}

func (s *standIn) HeadOf(ctx context.Context, key turnkeeper.ConversationKey) (operate.Head, error) {
	err := s.does(ctx, "HeadOf", key)
	if err != nil || key.Name != "old" {
		return operate.Head{}, err
	}
	return operate.Head{Message: 3, Conversation: key.Name, Outcome: turnkeeper.TurnSucceeded, Reply: "reply",
		History: []byte("history")}, nil
}

func (s *standIn) HeadsWithHistory(ctx context.Context, key turnkeeper.ConversationKey,
	history []byte) ([]operate.Head, error) {
	err := s.does(ctx, "HeadsWithHistory", key, history)
	return []operate.Head{{Message: 4, Conversation: "found", Outcome: turnkeeper.TurnSucceeded, Reply: "second",
		History: history}}, err
}

func (s *standIn) Saids(ctx context.Context, key turnkeeper.ConversationKey,
	ids []turnkeeper.MessageID) (map[turnkeeper.MessageID]operate.Said, error) {
	err := s.does(ctx, "Saids", key, ids)
	all := map[turnkeeper.MessageID]operate.Said{}
	for _, id := range ids {
		if id < 100 {
			all[id] = operate.Said{
				Sent: operate.Words{Text: fmt.Sprint("sent ", id), Labels: []string{"private"},
					Sources: []string{"a file"}},
				Reply: operate.Words{Text: fmt.Sprint("reply ", id), Labels: []string{"untrusted"},
					Sources: []string{"a page"}},
			}
		}
	}
	return all, err
}

func (s *standIn) Agents(ctx context.Context) ([]turnkeeper.AgentRegistration, error) {
	all, err := told[[]turnkeeper.AgentRegistration](ctx, s, "Agents")
	for i := range all {
		all[i].Name = []string{"clerk", "desk", "scout", "writer", "boss", "buyer", "judge"}[i]
		if i < 2 {
			all[i].RetiredAt = time.Time{}
		}
	}
	return all, err
}

func (s *standIn) Schedules(ctx context.Context) ([]turnkeeper.Schedule, error) {
	all, err := told[[]turnkeeper.Schedule](ctx, s, "Schedules")
	for i := range all {
		if all[i].Cron == "" {
			all[i].Cron, all[i].TimeZone, all[i].Active = "0 7 * * 1", "Europe/Berlin", true
		}
	}
	return all, err
}

func (s *standIn) Webhook(ctx context.Context, name string) (operate.WebhookView, error) {
	v, err := told[operate.WebhookView](ctx, s, "Webhook", name)
	if v.Name = name; name == "none" {
		return v, turnkeeper.ErrNotFound
	}
	return v, err
}

// Migrations returns a schema that is complete.
func (s *standIn) Migrations(ctx context.Context) ([]storage.Migration, error) {
	all, err := told[[]storage.Migration](ctx, s, "Migrations")
	for i := range all {
		all[i].Applied, all[i].Newer = true, false
	}
	return all, err
}

func (s *standIn) Transcript(ctx context.Context, p operate.Page,
	conversation string) ([]operate.Exchange, int64, error) {
	all, next, err := toldTwo[[]operate.Exchange, int64](ctx, s, "Transcript", p, conversation)
	if conversation == "none" {
		return nil, 0, err
	}
	return all, next, err
}

func (s *standIn) AnyToken(ctx context.Context) (bool, error) {
	return true, s.does(ctx, "AnyToken")
}

func (s *standIn) Events(ctx context.Context, turn turnkeeper.TurnID, after int64,
	limit int) ([]turnkeeper.Event, error) {
	if err := s.does(ctx, "Events", turn, after, limit); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(s.events(turn), func(e turnkeeper.Event) bool { return e.Seq <= after })
	return all[:min(limit, len(all))], nil
}

func (s *standIn) WatchedMessages(ctx context.Context,
	ids []turnkeeper.MessageID) (found []waiting.Message, err error) {
	err = s.does(ctx, "WatchedMessages", ids)
	for _, id := range ids {
		if id < 100 {
			found = append(found, s.states(id))
		}
	}
	return found, err
}
