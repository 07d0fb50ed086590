package httpapi_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi"
	"turnkeeper/httpapi/page"
	"turnkeeper/inference"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// An owner is whose an object is: an agent's, in a conversation of a user. user is empty for no user's, and * for what
// belongs to the agent alone.
type owner struct{ agent, user string }

// mark is in every text of an owner's objects. It names the agent and the user.
func (o owner) mark() string { return "by-" + o.agent + "-" + cmp.Or(o.user, "nobody") }

// other is the agent to which an owner's agent gives work, for the same user.
func (o owner) other() owner {
	if o.agent == "clerk" {
		return owner{"desk", o.user}
	}
	return owner{"clerk", o.user}
}

// A bearer is a token with its rights.
type bearer struct {
	name   string
	scopes []string
	agents []string // nil: all
	user   string   // empty: all
	header string
}

func (b bearer) seesAgent(agent string) bool {
	return b.agents == nil || slices.Contains(b.agents, agent)
}

func (b bearer) sees(o owner) bool {
	return b.seesAgent(o.agent) && (b.user == "" || o.user == "*" || o.user == b.user)
}

func (b bearer) may(scopes ...string) bool {
	return slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(b.scopes, s) })
}

var (
	agentsOfWorld = []string{"clerk", "desk"}
	usersOfWorld  = []string{"anna", "bert", ""}
)

// hidden lists the names that nothing may contain that the bearer is shown.
func (b bearer) hidden() (names []string) {
	for _, agent := range agentsOfWorld {
		if !b.seesAgent(agent) {
			names = append(names, agent)
		}
	}
	for _, user := range usersOfWorld {
		if b.user != "" && user != b.user {
			names = append(names, cmp.Or(user, "nobody"))
		}
	}
	return names
}

// A world has messages, turns, asks, events, outputs, replies, deliveries, schedules, levels, models, responses and
// conversations of two agents that give work to each other, and of two users and none, under the same names, in each
// state. Every text names its owner.
type world struct {
	*env
	api     http.Handler
	owners  []owner
	bearers []bearer
	told    map[[3]string]bool // what tells has reported
}

// newWorld makes a world. Nothing runs in it.
func newWorld(t *testing.T) *world {
	w := &world{env: newEnv(t), told: map[[3]string]bool{}}
	w.api = httpapi.New(httpapi.Config{
		Store: w.Store, NeedToken: true, Rate: 1_000_000, Rings: func() (<-chan struct{}, func()) {
			return nil, func() {}
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "turns 1") }),
		Rebuild: w.request,
	}).Handler()
	w.must(w.RegisterWebhook(t.Context(), outbox.Webhook{Name: "hook", Origin: "https://hook.example",
		SubAgents: true, Asks: true}))
	w.addAgents()
	w.addTokens()
	w.addTurns()
	w.addAsks()
	w.addStates()
	w.addResponses()
	return w
}

// request returns a request with the message of a turn.
func (w *world) request(ctx context.Context, turn turnkeeper.TurnID, round int) (sent page.SentRequest, err error) {
	v, err := w.ViewTurn(ctx, turn)
	sent.Turn, sent.Round = turn, round
	sent.Messages = []inference.Message{{Role: inference.RoleUser, Text: v.Message.Body}}
	return sent, err
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) addAgents() {
	for _, agent := range agentsOfWorld {
		o := owner{agent, "*"}
		source := fmt.Sprintf("---\nsub_agents: [%s]\ntools: [%s]\n---\nYou are %s.\n", o.other().agent,
			"read_file", agent)
		sum := sha256.Sum256([]byte(source))
		w.must(w.RegisterAgents(w.t.Context(), []turnkeeper.AgentRegistration{{
			Name: agent, Description: o.mark(), Definition: []byte(source), DefinitionHash: hex.EncodeToString(sum[:]),
			LanePerConversation: true,
			Models:              []string{"p/shared", "p/" + agent}, DayCalls: 1000,
			Schedules: []turnkeeper.Schedule{{
				Agent: agent, Name: "daily", Cron: "@daily", TimeZone: "UTC", Conversation: "main", Message: o.mark(),
			}},
		}}))
		w.must(w.PauseSchedule(w.t.Context(), agent, "daily", true, o.mark()))
		w.must(w.PinLevel(w.t.Context(), operate.Pin{Agent: agent, Level: survival.Normal, By: o.mark(),
			Reason: o.mark()}))
		w.Exec(`insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error)
			values ('p/' || $1, now(), now() + interval '1 h', 1, 'overloaded', $2)`, agent, o.mark())
		for _, user := range usersOfWorld {
			w.owners = append(w.owners, owner{agent, user})
		}
	}
}

func (w *world) addTokens() {
	all := []bearer{
		{name: "all", scopes: everything}, {name: "all-answer", scopes: []string{"answer", "read"}},
		{name: "clerk", scopes: everything, agents: []string{"clerk"}}, {name: "desk", scopes: everything,
			agents: []string{"desk"}},
		{name: "both", scopes: everything, agents: agentsOfWorld}, {name: "ghost", scopes: everything,
			agents: []string{"ghost"}},
		{name: "clerk-answer", scopes: []string{"answer"}, agents: []string{"clerk"}},
		{name: "clerk-send", scopes: []string{"send"}, agents: []string{"clerk"}},
		{name: "anna", scopes: everything, user: "anna"}, {name: "anna-send", scopes: []string{"send"}, user: "anna"},
		{name: "anna-answer", scopes: []string{"answer"}, user: "anna"},
		{name: "clerk-anna", scopes: everything, agents: []string{"clerk"}, user: "anna"},
		{name: "desk-bert", scopes: []string{"read"}, agents: []string{"desk"}, user: "bert"},
	}
	for _, b := range all {
		b.header = w.token(operate.Token{Name: b.name, Scopes: b.scopes, Agents: b.agents, User: b.user})
		w.bearers = append(w.bearers, b)
	}
}

func (w *world) bearer(name string) bearer {
	return w.bearers[slices.IndexFunc(w.bearers, func(b bearer) bool { return b.name == name })]
}

// begin sends a message of each owner to a conversation of this name, and grants its turn.
func (w *world) begin(conversation string) map[owner]*storagetest.Dispatch {
	ids := map[turnkeeper.MessageID]owner{}
	for _, o := range w.owners {
		id, err := w.Enqueue(w.t.Context(), turnkeeper.Submission{
			Agent: o.agent, User: o.user, Conversation: conversation, Body: "word " + o.mark(),
		})
		w.must(err)
		ids[id] = o
	}
	return w.granted(ids)
}

// granted grants the turns of messages.
func (w *world) granted(ids map[turnkeeper.MessageID]owner) map[owner]*storagetest.Dispatch {
	all := map[owner]*storagetest.Dispatch{}
	for _, d := range w.Dispatch("worker-1") {
		if o, ours := ids[d.Record.Turn.MessageID]; ours {
			all[o] = d
		}
	}
	if len(all) != len(ids) {
		w.t.Fatalf("%d of %d turns are granted", len(all), len(ids))
	}
	return all
}

func (w *world) append(d *storagetest.Dispatch, e turnlog.Entry, end turnlog.Consequence) {
	w.t.Helper()
	w.must(d.Append(w.t.Context(), e, end))
}

func delta(text string) turnkeeper.Event {
	return turnkeeper.Event{Type: turnkeeper.EventBlockDelta, Round: 1, Block: 1, Data: fmt.Appendf(nil,
		`{"text":%q}`, text)}
}

// round writes an answer with a call, its events and its result.
func (w *world) round(o owner, d *storagetest.Dispatch) {
	r := storagetest.Round(1, turnkeeper.EffectNone)
	r.Text, r.Calls[0].Arguments = o.mark(), `{"of":"`+o.mark()+`"}`
	begun := []turnkeeper.Event{{Type: turnkeeper.EventTurnStart, Data: []byte(`{}`)}, delta(o.mark())}
	w.append(d, turnlog.Entry{Round: r, Events: begun}, turnlog.Consequence{})
	result := storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallSucceeded, o.mark())
	result.Output = &turnkeeper.Output{
		ID: turnkeeper.OutputID(fmt.Sprint("output-", d.Grant.TurnID)), TurnID: d.Grant.TurnID,
		Call:      storagetest.Key(1, 1),
		MediaType: "text/plain", Text: o.mark(),
		SizeBytes: int64(len(o.mark())), RawBytes: int64(len(o.mark())), Chars: int64(len(o.mark())),
		SHA256: strings.Repeat("a", 64),
	}
	w.append(d, turnlog.Entry{Results: []turnlog.CallResult{result}, Events: []turnkeeper.Event{
		{Type: turnkeeper.EventToolResult, Round: 1, Data: fmt.Appendf(nil, `{"preview":%q}`, o.mark())},
	}}, turnlog.Consequence{})
}

func (w *world) end(o owner, d *storagetest.Dispatch, state turnkeeper.TurnState, message turnkeeper.MessageState) {
	outcome := &turnlog.Outcome{State: state, StopReason: turnkeeper.StopNone, Reply: o.mark()}
	if state != turnkeeper.TurnSucceeded {
		outcome.StopReason, outcome.ErrorClass, outcome.Error = turnkeeper.StopInferenceError, "overloaded", o.mark()
	}
	w.append(d, turnlog.Entry{Outcome: outcome, Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete,
		Data: []byte(`{}`)}}},
		turnlog.Consequence{Message: message, Log: "finished"})
}

// addTurns adds turns in every state but queued, and messages that wait behind them.
func (w *world) addTurns() {
	for i, end := range []struct {
		turn    turnkeeper.TurnState
		message turnkeeper.MessageState
	}{
		{turnkeeper.TurnSucceeded, turnkeeper.MessageSucceeded}, {turnkeeper.TurnFailed, turnkeeper.MessageFailed},
		{turnkeeper.TurnDegraded, turnkeeper.MessageDegraded}, {turnkeeper.TurnCancelled, turnkeeper.MessageCancelled},
	} {
		for o, d := range w.begin([]string{"main", "other"}[i%2]) {
			w.round(o, d)
			w.end(o, d, end.turn, end.message)
		}
	}
	w.addTrees()
	for _, d := range w.begin("detached") {
		start := storagetest.Start(storagetest.Key(1, 1), fmt.Sprint("n", d.Grant.TurnID), 1, turnkeeper.EffectOnce)
		start.Detached = time.Hour
		running := storagetest.Result(start.Key, start.Nonce, turnkeeper.CallRunning, "handle")
		running.OutputID = turnkeeper.OutputID(fmt.Sprint("later-", d.Grant.TurnID))
		d.Write(w.t, turnlog.Entry{
			Round: storagetest.Round(1, turnkeeper.EffectOnce), Starts: []turnlog.CallStart{start},
			Results: []turnlog.CallResult{running},
		})
		d.Wait(w.t)
	}
	for o, d := range w.begin("main") {
		w.round(o, d)
		w.append(d, turnlog.Entry{Asks: []asks.Question{approval(o.mark())}}, turnlog.Consequence{})
	}
	for _, o := range w.owners {
		_, err := w.Enqueue(w.t.Context(), turnkeeper.Submission{Agent: o.agent, User: o.user,
			Body: "waits " + o.mark()})
		w.must(err)
	}
}

// give lets a turn give work to the other agent, and returns the message.
func (w *world) give(to owner, d *storagetest.Dispatch, root turnkeeper.TurnID, path ...string) turnkeeper.MessageID {
	message, err := d.NewMessage(w.t.Context())
	w.must(err)
	start := storagetest.Start(storagetest.Key(1, 1), fmt.Sprint("s", d.Grant.TurnID), 1, turnkeeper.EffectKeyed)
	start.Spawn = &turnlog.Spawn{
		Message: message, Agent: to.agent, Task: "word " + to.mark(), Root: root, Agents: append(path, to.agent),
		Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 9}, Within: time.Hour,
	}
	d.Write(w.t, turnlog.Entry{
		Round: storagetest.Round(1, turnkeeper.EffectKeyed), Starts: []turnlog.CallStart{start},
		Results: []turnlog.CallResult{storagetest.Result(start.Key, start.Nonce, turnkeeper.CallRunning, "not yet")},
	})
	d.Wait(w.t)
	return message
}

// addTrees lets each owner's turn wait for a sub-agent of the other agent, which waits for one of the first agent,
// which asks. A second tree of each waits for a sub-agent that has replied.
func (w *world) addTrees() {
	children, grandchildren, replied := map[turnkeeper.MessageID]owner{}, map[turnkeeper.MessageID]owner{},
		map[turnkeeper.MessageID]owner{}
	roots := map[owner]turnkeeper.TurnID{}
	begun := w.begin("tree")
	for _, o := range w.owners {
		d := begun[o]
		children[w.give(o.other(), d, d.Grant.TurnID, o.agent)] = o.other()
		roots[o.other()] = d.Grant.TurnID
	}
	begun = w.granted(children)
	for _, o := range w.owners {
		d := begun[o]
		grandchildren[w.give(o.other(), d, roots[o], o.other().agent, o.agent)] = o.other()
	}
	for o, d := range w.granted(grandchildren) {
		w.round(o, d)
		w.append(d, turnlog.Entry{Asks: []asks.Question{approval(o.mark())}}, turnlog.Consequence{})
		d.Wait(w.t)
	}
	begun = w.begin("tree-2")
	for _, o := range w.owners {
		d := begun[o]
		replied[w.give(o.other(), d, d.Grant.TurnID, o.agent)] = o.other()
	}
	for o, d := range w.granted(replied) {
		w.round(o, d)
		w.end(o, d, turnkeeper.TurnSucceeded, turnkeeper.MessageSucceeded)
	}
}

// addAsks adds a closed ask in each state to each owner's first turn.
func (w *world) addAsks() {
	w.Exec(
		`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, state, tool, arguments, args_hash, rule, reason,
		audience, hold, expires_at, closed_at,
			answered_by, comment, answer)
		select t.id, 1, 1, case s when 'answered' then 'question' else 'approve' end, 10 + n, s, 'pay', json_build_object('of',
		m.body), repeat('a', 64), m.body, m.body, '{}',
			false, now() + interval '1 day', now(), 'ann', m.body, case s when 'answered' then to_json(m.body) end
		from (select min(id) as id from turnkeeper.turns group by agent, user_name) f join turnkeeper.turns t using (id) join
		turnkeeper.messages m on m.id = t.message_id,
			unnest(array['approved', 'denied', 'answered', 'expired', 'withdrawn']) with ordinality as c (s, n)`)
}

// addStates adds a queued turn of each owner, and changes deliveries so that each owner has some in each state.
func (w *world) addStates() {
	for _, d := range w.begin("lost") {
		w.Lose(d)
	}
	w.Exec(
		`update turnkeeper.webhook_deliveries d set state = s.state, due_at = null, attempts = 1, first_at = now(), last_at =
		now(), status = 500, error = s.mark, duration_ms = 1
		from (select x.id, (array['pending', 'delivered', 'dead'])[1 + row_number() over (partition by t.agent, t.user_name order by
		x.id) % 3] as state, m.body as mark
			from turnkeeper.webhook_deliveries x left join turnkeeper.replies r on r.id = x.reply_id left join turnkeeper.asks a on a.id = x.ask_id
			join turnkeeper.turns t on t.id = coalesce(r.turn_id, a.turn_id) join turnkeeper.messages m on m.id = t.message_id) s
		where s.id = d.id and s.state <> 'pending'`)
}

// addResponses sends messages by the Responses API, and creates conversations.
func (w *world) addResponses() {
	for _, o := range w.owners {
		body := fmt.Sprintf(`{"model":%q,"input":%q,"user":%q,"conversation":"talk","background":true}`, o.agent,
			"word "+o.mark(), o.user)
		if o.user == "" {
			body = strings.Replace(body, `"user":"",`, "", 1)
		}
		w.call(w.bearer("all"), "POST", "/v1/responses", body).want(w.t, 200, "queued")
	}
	for _, name := range []string{"all", "clerk", "anna", "clerk-anna", "anna-send"} {
		w.call(w.bearer(name), "POST", "/v1/conversations", "").want(w.t, 200, "conv_")
	}
}

// A recorder records an answer. It ends the request once the answer contains a text.
type recorder struct {
	*httptest.ResponseRecorder
	until string
	end   context.CancelFunc
}

func (r recorder) Write(b []byte) (int, error) {
	n, err := r.ResponseRecorder.Write(b)
	if r.until != "" && strings.Contains(string(b), r.until) {
		r.end()
	}
	return n, err
}

// call sends a request without a connection. headers are names and values.
func (w *world) call(as bearer, method, path, body string, headers ...string) answer {
	w.t.Helper()
	return w.callUntil("", as, method, path, body, headers...)
}

// callUntil is like call, but ends a stream as soon as it has sent the text until.
func (w *world) callUntil(until string, as bearer, method, path, body string, headers ...string) answer {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), storagetest.Patience)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Authorization", as.header)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	to := recorder{httptest.NewRecorder(), until, cancel}
	func() {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // it is a value of panic
				panic(p)
			}
		}()
		w.api.ServeHTTP(to, r)
	}()
	if until == "" && ctx.Err() != nil {
		w.t.Errorf("%s %s of %s did not end", method, path, as.name)
	}
	return answer{to.Code, to.Header(), to.Body.Bytes()}
}
