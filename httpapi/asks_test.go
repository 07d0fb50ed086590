package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// approval is an ask for the approval of a payment to somebody.
func approval(to string) asks.Question {
	return asks.Question{
		Call: turnkeeper.CallKey{Round: 1, Ordinal: 1}, Kind: asks.KindApprove, N: 1, Tool: "pay_invoice",
		Arguments: `{"amount":900,"to":"` + to + `"}`,
		Rule:      "args.amount > 500", Reason: "the amount is above 500",
		Schema: `{"type":"object","required":["amount"],"properties":{"amount":{"type":"number"},"to":{"type":"string"}}}`,
		Terms:  asks.Terms{Hold: true, Timeout: time.Hour},
	}
}

func question(schema string) asks.Question {
	q := approval("")
	q.Kind, q.Tool, q.Arguments, q.Reason, q.Schema = asks.KindQuestion, turnkeeper.ToolAskPerson,
		`{"question":"Which colour?"}`, "Which colour?", schema
	return q
}

// opens opens an ask of a turn and returns its id.
func (h *env) opens(d *dispatch, q asks.Question) asks.ID {
	h.t.Helper()
	d.write(turnlog.Entry{Asks: []asks.Question{q}}, turnlog.Consequence{})
	return one[asks.ID](h, "select max(id) from turnkeeper.asks where turn_id = $1", int64(d.id))
}

type askView struct {
	ID         asks.ID
	State      string
	Agent      string
	Hash       string
	AnsweredBy *string `json:"answered_by"`
	Channel    *string
	Comment    *string
	Answer     json.RawMessage
	Edited     json.RawMessage `json:"edited_arguments"`
	Path       []struct {
		TurnID int64 `json:"turn_id"`
		Agent  string
	}
}

func TestAsksAreListed(t *testing.T) {
	h := newEnv(t)
	first, second := h.opens(h.turn("clerk", "a"), approval("acme")), h.opens(h.turn("desk", "b"),
		question(`{"type":"string"}`))
	turn := one[int64](h, "select turn_id from turnkeeper.asks where id = $1", first)
	list := func(query string) (ids []asks.ID, next *asks.ID) {
		t.Helper()
		page := decode[struct {
			Items []askView
			Next  *asks.ID
		}](t, h.ask("GET", "/v1/asks"+query, ""))
		for _, a := range page.Items {
			ids = append(ids, a.ID)
		}
		return ids, page.Next
	}
	if _, err := h.AnswerAsk(t.Context(), second, asks.Answer{Decision: asks.Denied, By: "ann",
		Channel: "sql"}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]asks.ID{
		"": {second, first}, "?state=open": {first}, "?state=denied": {second}, "?agent=desk": {second},
		fmt.Sprintf("?turn=%d", turn): {first},
		"?limit=1":                    {second}, fmt.Sprintf("?limit=1&cursor=%d", second): {first},
		"?state=expired": nil,
	} {
		if got, next := list(query); !slices.Equal(got, want) || (next != nil) != strings.Contains(query, "limit") {
			t.Errorf("%s lists %v, next %v; want %v", query, got, next, want)
		}
	}
	h.ask("GET", "/v1/asks?state=pending", "").want(t, 400, "state must be one of open, approved")
	h.ask("GET", "/v1/asks?turn=x", "").want(t, 400, "turn must be")
	h.ask("GET", "/v1/asks/987654321", "").want(t, 404, "there is no ask 987654321")
	got := decode[map[string]any](t, h.ask("GET", fmt.Sprintf("/v1/asks/%d", first), ""))
	for name, want := range map[string]any{
		"kind": "approve", "tool": "pay_invoice", "state": "open", "reason": "the amount is above 500",
		"rule": "args.amount > 500", "agent": "clerk", "hold": true,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if args, _ := got["arguments"].(map[string]any); args["amount"] != 900.0 {
		t.Errorf("the arguments are %v", got["arguments"])
	}
}

func TestAsksAreAnswered(t *testing.T) {
	h := newEnv(t)
	token := h.token(operate.Token{Name: "ann", Scopes: []string{"answer"}})
	d := h.turn("clerk", "a")
	id := h.opens(d, approval("acme"))
	path := fmt.Sprintf("/v1/asks/%d/answer", id)
	hash := decode[askView](t, h.ask("GET", fmt.Sprintf("/v1/asks/%d", id), "", "Authorization", token)).Hash
	say := func(body string) answer {
		t.Helper()
		return h.ask("POST", path, strings.ReplaceAll(body, "HASH", hash), "Authorization", token)
	}
	say(`{"decision":"approved"}`).want(t, 400, "hash is required")
	say(`{"decision":"approved","hash":"abc"}`).want(t, 409, "read the ask again")
	say(`{"decision":"answered","hash":"HASH"}`).want(t, 400,
		"an ask of kind approve can be approved or denied, not answered")
	say(`{"decision":"maybe","hash":"HASH"}`).want(t, 400, "not maybe")
	say(`{"decision":"approved\u0000","hash":"HASH"}`).want(t, 400, "decision has a NUL character")
	say(`{"decision":"answered","hash":"HASH","answer":1}`).want(t, 400,
		"an ask of kind approve can be approved or denied")
	say(`{"decision":"approved","hash":"HASH","arguments":{"amount":"much"}}`).want(t, 400, "the arguments are invalid")
	say(`{"decision":"approved","hash":"HASH","arguments":null}`).want(t, 400, "the arguments are invalid")
	say(`{"decision":"denied","hash":"HASH","arguments":{"amount":1}}`).want(t, 400,
		"only the approval of a call takes edited arguments")
	say(`{"decision":"approved","hash":"HASH","answered_by":"bob"}`).want(t, 400, "omit answered_by")
	say(`{"decision":"approved","hash":"HASH","when":"now"}`).want(t, 400, "invalid request body")
	h.ask("POST", "/v1/asks/987654321/answer", `{"decision":"approved","hash":"x"}`, "Authorization", token).want(t,
		404, "there is no ask")

	edit :=
		`{"decision":"approved","hash":"HASH","answered_by":"ann","arguments":{"to": "acme", "amount": 90},"comment":"less"}`
	for range 2 { // the same answer again is no error
		got := decode[askView](t, say(edit))
		if got.State != "approved" || *got.AnsweredBy != "ann" || *got.Channel != "http" || *got.Comment != "less" ||
			string(got.Edited) != `{"amount":90,"to":"acme"}` {
			t.Errorf("answered: %+v", got)
		}
	}
	say(`{"decision":"denied","hash":"HASH"}`).want(t, 409, "the ask is closed: it was approved by ann")
	say(`{"decision":"approved","hash":"HASH"}`).want(t, 409, "the ask is closed")

	d.finish("done")
	// Unchanged arguments are no edit. Without a token the body says who answers.
	id = h.opens(h.turn("desk", "b"), approval("acme"))
	path, token = fmt.Sprintf("/v1/asks/%d/answer", id), ""
	hash = one[string](h, "select args_hash from turnkeeper.asks where id = $1", id)
	local := func(body string) answer { return h.ask("POST", path, strings.ReplaceAll(body, "HASH", hash)) }
	local(`{"decision":"approved","hash":"HASH"}`).want(t, 400, "answered_by is required")
	got := decode[askView](t,
		local(`{"decision":"approved","hash":"HASH","answered_by":"bob","arguments":{"to":"acme","amount":900}}`))
	if got.State != "approved" || *got.AnsweredBy != "bob" || string(got.Edited) != "null" {
		t.Errorf("answered: %+v", got)
	}
}

func TestQuestionsAreAnswered(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "a")
	q := question(`{"enum":["blue","red"]}`)
	q.Audience = []string{"ann"}
	id := h.opens(d, q)
	hash := one[string](h, "select args_hash from turnkeeper.asks where id = $1", id)
	say := func(answer, by string) answer {
		t.Helper()
		return h.ask("POST", fmt.Sprintf("/v1/asks/%d/answer", id),
			fmt.Sprintf(`{"decision":"answered","hash":%q,"answer":%s,"answered_by":%q}`, hash, answer, by))
	}
	say(`"green"`, "ann").want(t, 400, "the answer is invalid")
	say(`"blue"`, "bob").want(t, 403, "the ask is for ann, not for bob")
	say("null", "ann").want(t, 400, "needs an answer, which other decisions do not take")
	if got := decode[askView](t, say(`"blue"`, "ann")); got.State != "answered" || string(got.Answer) != `"blue"` {
		t.Errorf("answered: %+v", got)
	}
	say(`"blue"`, "ann").want(t, 200, `"state":"answered"`)
	say(`"red"`, "ann").want(t, 409, "the ask is closed")

	q = approval("acme")
	q.Timeout = time.Millisecond
	id = h.opens(h.turn("desk", "b"), q)
	hash = one[string](h, "select args_hash from turnkeeper.asks where id = $1 and pg_sleep(0.01) is not null", id)
	h.ask("POST", fmt.Sprintf("/v1/asks/%d/answer", id),
		fmt.Sprintf(`{"decision":"approved","hash":%q,"answered_by":"ann"}`, hash)).want(t, 409, "it expired at")
}

func TestWhoMayAnswer(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	clerk, desk := h.opens(h.turn("clerk", "a"), approval("acme")), h.opens(h.turn("desk", "b"), approval("acme"))
	ann := h.token(operate.Token{Name: "ann", Scopes: []string{"answer"}, Agents: []string{"clerk"}})
	for _, scope := range []string{"send", "read", "operate"} {
		token := h.token(operate.Token{Name: scope, Scopes: []string{scope}})
		h.ask("POST", fmt.Sprintf("/v1/asks/%d/answer", clerk), `{}`, "Authorization", token).want(t, 403,
			`the scope \"answer\"`)
	}
	h.ask("POST", fmt.Sprintf("/v1/asks/%d/answer", clerk), `{}`).want(t, 401, "a token is required")
	h.ask("POST", fmt.Sprintf("/v1/asks/%d/answer", desk), `{"decision":"denied","hash":"x"}`, "Authorization",
		ann).want(t, 404, "there is no ask")
	h.ask("GET", fmt.Sprintf("/v1/asks/%d", desk), "", "Authorization", ann).want(t, 404, "there is no ask")
	if got := decode[struct{ Items []askView }](t, h.ask("GET", "/v1/asks", "", "Authorization", ann)); len(
		got.Items) != 1 || got.Items[0].ID != clerk {
		t.Errorf("the token of one agent lists %+v", got)
	}
	_, _, err := h.CreateToken(t.Context(), operate.Token{Name: "both", Scopes: []string{"answer", "send"}})
	if err == nil || !strings.Contains(err.Error(), "no_token_may_both_send_and_answer") {
		t.Errorf("a token may send and answer: %v", err)
	}
}

// With four_eyes the token that sent the message of a tree's root answers none of its asks, although it may answer
// others. Such a token exists only if its scopes were changed.
func TestFourEyes(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.FourEyes = true })
	shop := h.token(operate.Token{Name: "shop", Scopes: []string{"send"}})
	ann := h.token(operate.Token{Name: "ann", Scopes: []string{"answer"}})
	h.ask("POST", "/v1/messages", `{"agent":"clerk","body":"pay"}`, "Authorization", shop).want(t, 201, "")
	d := h.dispatch("clerk")
	mine := h.opens(d, approval("acme"))
	h.Exec("update turnkeeper.api_tokens set scopes = '{answer}' where name = 'shop'")
	others := h.opens(h.turn("desk", "b"), approval("acme"))
	say := func(id asks.ID, token string) answer {
		t.Helper()
		hash := one[string](h, "select args_hash from turnkeeper.asks where id = $1", id)
		body := fmt.Sprintf(`{"decision":"approved","hash":%q,"answered_by":""}`, hash)
		if token == "" {
			return h.ask("POST", fmt.Sprintf("/v1/asks/%d/answer", id), body)
		}
		return h.ask("POST", fmt.Sprintf("/v1/asks/%d/answer", id), body, "Authorization", token)
	}
	say(mine, shop).want(t, 403, "this token sent the message")
	say(mine, "").want(t, 403, "four_eyes is on")
	// A sub-agent's ask is of the message of the root.
	child := one[turnkeeper.TurnID](h, "select turn_id from turnkeeper.asks where id = $1", others)
	h.Exec("insert into turnkeeper.agent_trees (root, max_depth, max_agents) values ($1, 2, 2)", int64(d.id))
	h.Exec(`insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline)
		select $1, 2, 1, message_id, agent, $1, '{clerk,desk}', now() + interval '1 hour' from turnkeeper.turns where id = $2`, int64(d.id), int64(child))
	say(others, shop).want(t, 403, "this token sent the message")
	desk := h.token(operate.Token{Name: "desk", Scopes: []string{"read"}, Agents: []string{"desk"}})
	for token, want := range map[string]string{desk: fmt.Sprintf("[{0 } {%d desk}]", child),
		ann: fmt.Sprintf("[{%d clerk} {%d desk}]", d.id, child)} {
		if got := decode[askView](t, h.ask("GET", fmt.Sprintf("/v1/asks/%d", others), "", "Authorization",
			token)).Path; fmt.Sprint(got) != want {
			t.Errorf("the path is %v, want %s", got, want) // of a tree, the other agents are not named
		}
	}
	say(others, ann).want(t, 200, `"state":"approved"`)
	h.Exec("delete from turnkeeper.spawned_calls")
	say(others, ann).want(t, 200, `"state":"approved"`) // a repeat
	say(others, shop).want(t, 409, "the ask is closed: it was approved by ann")

	say(mine, ann).want(t, 200, `"state":"approved"`)
}

// A message has the token that sent it first, by either API; its retry has the same. Others have none.
func TestSenders(t *testing.T) {
	h := newEnv(t)
	shop, other := h.token(operate.Token{Name: "shop", Scopes: []string{"send"}}),
		h.token(operate.Token{Name: "other", Scopes: []string{"send"}})
	newest := func() (id int64) { return one[int64](h, "select max(id) from turnkeeper.messages") }
	want := func(id int64, want string) {
		t.Helper()
		if got := one[string](h,
			"select coalesce((select t.name from turnkeeper.messages m join turnkeeper.api_tokens t on m.sent_by = 'token:' || t.id where m.id = $1), 'nobody')", id); got != want {
			t.Errorf("message %d is from %s, want %s", id, got, want)
		}
	}
	const pay = `{"agent":"clerk","body":"pay"}`
	h.ask("POST", "/v1/messages", pay, "Authorization", shop, "Idempotency-Key", "a").want(t, 201, "")
	h.ask("POST", "/v1/messages", pay, "Authorization", other, "Idempotency-Key", "a").want(t, 200, "")
	sent := newest()
	want(sent, "shop")
	h.ask("POST", "/v1/messages", pay, "Idempotency-Key", "b").want(t, 201, "")
	h.ask("POST", "/v1/messages", pay, "Authorization", other, "Idempotency-Key", "b").want(t, 200, "")
	local := newest()
	want(local, "nobody")
	h.ask("POST", "/v1/responses", `{"model":"clerk","input":"pay","background":true}`, "Authorization",
		other).want(t, 200, "")
	response := newest()
	want(response, "other")
	for of, sender := range map[int64]string{sent: "shop", local: "nobody", response: "other"} {
		h.Exec("select turnkeeper.cancel_message($1, '')", of)
		want(one[int64](h, "select message from turnkeeper.retry_message($1, false)", of), sender)
	}
}

// TestAWaitForAPersonIsShown checks every page and list that shows a turn that waits.
func TestAWaitForAPersonIsShown(t *testing.T) {
	h := newEnv(t)
	h.turn("clerk", "work").write(turnlog.Entry{
		Asks: []asks.Question{approval("x")}, Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting},
	}, turnlog.Consequence{Log: "waiting"})
	const text = "turn 1 waits for a person to answer 1 ask; the first expires at"
	for path, want := range map[string]string{
		"/": "1 for a person: the oldest began …, the first ends in", "/turns": "for a person",
		"/inbox": "for a person",
		"/lanes": "turn 1 outside: for a person", "/turns/1": text, "/inbox/1": text,
		"/v1/turns": text, "/v1/lanes": text, "/v1/turns/1": text, "/v1/messages/1": text,
	} {
		a := h.ask("GET", path, "")
		for part := range strings.SplitSeq(want, "…") { // it may be slow
			if a.status != 200 || !strings.Contains(string(a.body), part) {
				t.Errorf("%s is answered %d, without %q", path, a.status, part)
			}
		}
	}
}
