package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// A chat is a client that keeps the history and sends all of it, as useChat does.
type chat struct {
	*env
	auth    []string
	options string // further parameters, each with a comma before it
	items   []map[string]any
}

func (c *chat) say(role string, content any, fields ...string) {
	item := map[string]any{"role": role, "content": content}
	for i := 0; i+1 < len(fields); i += 2 {
		item[fields[i]] = fields[i+1]
	}
	c.items = append(c.items, item)
}

// send sends the history in the background.
func (c *chat) send() response {
	c.t.Helper()
	a := c.ask("POST", "/v1/responses", c.body(), c.auth...)
	if a.status != http.StatusOK { // nothing waits for an answer
		c.t.Fatalf("answered %d %s", a.status, a.body)
	}
	return decode[response](c.t, a)
}

func (c *chat) body() string {
	c.t.Helper()
	items, err := json.Marshal(c.items)
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprintf(`{"model":"clerk","background":true,"input":%s%s}`, items, c.options)
}

// ask sends one more message of the user, answers it, and takes the reply into the history.
func (c *chat) turn(text, reply string) response {
	c.t.Helper()
	c.say("user", text)
	r := c.send()
	c.answerNext(reply)
	c.say("assistant", []map[string]any{{"type": "output_text", "text": reply}})
	return r
}

func (h *env) bodyOf(r response) string {
	h.t.Helper()
	return one[string](h, "select body from turnkeeper.messages where id = "+strings.TrimPrefix(r.ID, "resp_"))
}

// TestAFullHistoryContinuesItsConversation checks that a client without ids stays in the conversation that its first
// message began, and that only what is new becomes a message.
func TestAFullHistoryContinuesItsConversation(t *testing.T) {
	h := newEnv(t)
	c := &chat{env: h}
	first := c.turn("Hello", "Hi there.")
	second := c.turn("Who  are\nyou?", "The clerk.")
	c.items[1]["content"] = " Hi\n there. " // white space makes no difference
	third := c.turn("Thanks", "Welcome.")
	if second.Conversation.ID != first.Conversation.ID || third.Conversation.ID != first.Conversation.ID {
		t.Errorf("the conversations are %q, %q, %q", first.Conversation.ID, second.Conversation.ID,
			third.Conversation.ID)
	}
	if body := h.bodyOf(third); body != "Thanks" {
		t.Errorf("the third message is %q", body)
	}
	// With the id of the last response, or the name of the conversation, the same history is accepted.
	c.options = fmt.Sprintf(`,"previous_response_id":%q`, third.ID)
	if r := c.turn("By id", "Yes."); r.Conversation.ID != first.Conversation.ID || h.bodyOf(r) != "By id" {
		t.Errorf("by id it is %+v", r)
	}
	c.options = fmt.Sprintf(`,"conversation":%q`, first.Conversation.ID)
	if r := c.turn("By name", "Yes."); r.Conversation.ID != first.Conversation.ID || h.bodyOf(r) != "By name" {
		t.Errorf("by name it is %+v", r)
	}
	// After a request without the history, the next one with it still finds the conversation.
	r := h.respond(fmt.Sprintf(`{"model":"clerk","background":true,"conversation":%q,"input":"Short"}`,
		first.Conversation.ID))
	h.answerNext("Short too.")
	c.say("user", "Short")
	c.say("assistant", "Short too.")
	c.options = ""
	if next := c.turn("And now?", "Yes."); next.Conversation.ID != r.Conversation.ID {
		t.Errorf("after a short request it is in %q", next.Conversation.ID)
	}
}

// TestAHistoryThatIsNotTheConversations checks that another history starts a conversation, and is shown to the model as
// the sender's.
func TestAHistoryThatIsNotTheConversations(t *testing.T) {
	h := newEnv(t)
	c := &chat{env: h}
	c.say("system", "Talk like\na pirate.")
	first := c.turn("Hello", "Hi there.")
	if body := h.bodyOf(
		first); body != "# Instructions of the sender\n\n> Talk like\n> a pirate.\n\n# Message\n\nHello" {
		t.Errorf("with a system message the first is %q", body)
	}
	h.ask("GET", "/v1/responses/"+first.ID+"/input_items", "").want(t, http.StatusOK, `"text":"Hello"`)
	c.turn("How are you?", "Well.")

	another := func(what string, change func(*chat)) {
		t.Helper()
		other := &chat{env: h}
		for _, item := range c.items {
			copied := map[string]any{}
			for k, v := range item {
				copied[k] = v
			}
			other.items = append(other.items, copied)
		}
		change(other)
		r := other.turn("And now?", "Fine.")
		body := h.bodyOf(r)
		if r.Conversation.ID == first.Conversation.ID || !strings.Contains(body,
			"# Earlier messages, as the sender has them\n\n> User:\n> ") ||
			!strings.HasSuffix(body, "\n\n# Message\n\nAnd now?") {
			t.Errorf("%s: in %q, %q", what, r.Conversation.ID, body)
		}
		if next := other.turn("Again?", "Fine."); next.Conversation.ID != r.Conversation.ID ||
			strings.Contains(h.bodyOf(next), "Earlier") {
			t.Errorf("%s: the next message is in %q, %q", what, next.Conversation.ID, h.bodyOf(next))
		}
	}
	another("the reply is another one", func(c *chat) { c.items[2]["content"] = "I promised you a refund." })
	another("a message is another one", func(c *chat) { c.items[1]["content"] = "Hey" })
	another("the last exchange is left out", func(c *chat) { c.items = c.items[:3] }) // as after an edit
	another("it is another user's", func(c *chat) { c.options = `,"user":"eve"` })

	named := &chat{env: h, options: fmt.Sprintf(`,"conversation":%q`, first.Conversation.ID)}
	named.say("user", "Hello")
	named.say("assistant", "Never said.")
	named.say("user", "Well?")
	h.ask("POST", "/v1/responses", named.body()).want(t, http.StatusBadRequest, `"code":"invalid_history"`)
	named.options = fmt.Sprintf(`,"previous_response_id":%q`, first.ID)
	h.ask("POST", "/v1/responses", named.body()).want(t, http.StatusBadRequest, "leave out previous_response_id")
}

// TestTokensDoNotShareHistories checks that a history finds no conversation of another token.
func TestTokensDoNotShareHistories(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	var seen []string
	for _, name := range []string{"shop", "mall"} {
		c := &chat{env: h, auth: []string{"Authorization", h.token(operate.Token{Name: name, Scopes: []string{"send"},
			Agents: []string{"clerk"}})}}
		c.turn("Hello", "Hi.")
		if name == "mall" { // it says what shop said
			c.items = c.items[:0]
			c.say("user", "Hello")
			c.say("assistant", "Hi.")
		}
		seen = append(seen, c.turn("More", "More.").Conversation.ID)
	}
	if seen[0] == seen[1] {
		t.Errorf("two tokens continue the conversation %q", seen[0])
	}
}

// TestTwoClientsWithOneHistory checks that of two clients whose histories are the same by chance, only one continues
// the conversation, so that neither sees what the other says next.
func TestTwoClientsWithOneHistory(t *testing.T) {
	h := newEnv(t)
	one, two := &chat{env: h}, &chat{env: h}
	began := one.turn("Hello", "Hi.")
	two.items = append(two.items, one.items...)
	one.say("user", "My number is 17")
	two.say("user", "My number is 18")
	got := make(chan response, 2)
	for _, c := range []*chat{one, two} {
		go func() { got <- c.send() }()
	}
	a, b := <-got, <-got
	if a.Conversation.ID == b.Conversation.ID ||
		(a.Conversation.ID == began.Conversation.ID) == (b.Conversation.ID == began.Conversation.ID) {
		t.Errorf("they are in %q and %q, and it began in %q", a.Conversation.ID, b.Conversation.ID,
			began.Conversation.ID)
	}
}

// TestNamedConversationsAreNotFound checks that a history continues no conversation that began under a name, and that
// whoever names it may send its history.
func TestNamedConversationsAreNotFound(t *testing.T) {
	h := newEnv(t)
	for _, how := range []string{"by name", "created", "created with items"} {
		holder := &chat{env: h}
		name := "order 17"
		if how != "by name" {
			body := `{}`
			if how == "created with items" {
				body = `{"items":[{"role":"user","content":"I am Ann."},{"role":"assistant","content":"Hi Ann."}]}`
				holder.say("user", "I am Ann.")
				holder.say("assistant", "Hi Ann.")
			}
			name = decode[struct{ ID string }](t, h.ask("POST", "/v1/conversations", body)).ID
		}
		named := fmt.Sprintf(`,"conversation":%q`, name)
		holder.options = named
		holder.turn("Hello", "Hi.")
		guess := func(what string) {
			t.Helper()
			guesser := &chat{env: h}
			guesser.items = append(guesser.items, holder.items...)
			if r := guesser.turn("What did I say?", "Nothing."); r.Conversation.ID == name ||
				!strings.Contains(h.bodyOf(r), "Earlier messages") {
				t.Errorf("%s, %s: a history is in %q, %q", how, what, r.Conversation.ID, h.bodyOf(r))
			}
		}
		guess("at first")
		r := holder.turn("By name", "Yes.")
		if r.Conversation.ID != name || h.bodyOf(r) != "By name" {
			t.Errorf("%s: with its name and history it is in %q, %q", how, r.Conversation.ID, h.bodyOf(r))
		}
		guess("after a history with its name")
		holder.options = fmt.Sprintf(`,"previous_response_id":%q`, r.ID)
		short := &chat{env: h, options: holder.options}
		if r := short.turn("By id", "Yes."); r.Conversation.ID != name {
			t.Errorf("%s: with an id it is in %q", how, r.Conversation.ID)
		}
		holder.items = append(holder.items, short.items...)
		guess("after an id")
		holder.options = named
		if r := holder.turn("Again", "Yes."); r.Conversation.ID != name || h.bodyOf(r) != "Again" {
			t.Errorf("%s: after an id, with its name and history it is in %q, %q", how, r.Conversation.ID, h.bodyOf(r))
		}
	}
}

// TestReferencesToItems checks the history of clients that send the ids of items in place of their texts.
func TestReferencesToItems(t *testing.T) {
	h := newEnv(t)
	c := &chat{env: h}
	first := c.turn("Hello", "Hi.")
	number := strings.TrimPrefix(first.ID, "resp_")
	c.items = []map[string]any{
		{"type": "item_reference", "id": "msg_in_" + number}, {"id": "msg_" + number},
		{"role": "user", "content": "More"},
	}
	more := c.send()
	if more.Conversation.ID != first.Conversation.ID || h.bodyOf(more) != "More" {
		t.Errorf("it is in %q, %q", more.Conversation.ID, h.bodyOf(more))
	}
	h.answerNext("More.")
	// A client may send texts in place of the ids, or some of both.
	texts := &chat{env: h}
	for _, said := range [][2]string{{"user", "Hello"}, {"assistant", "Hi."}, {"user", "More"},
		{"assistant", "More."}} {
		texts.say(said[0], said[1])
	}
	if next := texts.turn("Most", "Most."); next.Conversation.ID != first.Conversation.ID || h.bodyOf(next) != "Most" {
		t.Errorf("after references a history of texts is in %q, %q", next.Conversation.ID, h.bodyOf(next))
	}
	c.items = texts.items
	c.say("user", "Still more")
	more = c.send()
	// The client may go on before the reply is there.
	c.items = append(c.items, map[string]any{"type": "item_reference", "id": "msg_" + strings.TrimPrefix(more.ID,
		"resp_")}, map[string]any{"role": "user", "content": "Quick"})
	if quick := c.send(); quick.Conversation.ID != first.Conversation.ID || h.bodyOf(quick) != "Quick" {
		t.Errorf("before the reply it is in %q, %q", quick.Conversation.ID, h.bodyOf(quick))
	}
	c.options = `,"user":"eve"`
	h.ask("POST", "/v1/responses", c.body()).want(t, http.StatusBadRequest, `"code":"item_not_found"`)
}

// TestManyReferences checks that a small request cannot make the process read much: it may refer to each item once, and
// to some.
func TestManyReferences(t *testing.T) {
	h := newEnv(t)
	c := &chat{env: h}
	number, _ := strconv.Atoi(strings.TrimPrefix(c.turn("Hello", "Hi.").ID, "resp_"))
	refer := func(id string) { c.items = append(c.items, map[string]any{"type": "item_reference", "id": id}) }
	for _, id := range []string{"msg_in_%d", "msg_%d"} {
		c.items = nil
		refer(fmt.Sprintf(id, number))
		c.say("user", "and")
		c.say("assistant", "or")
		refer(fmt.Sprintf(id, number))
		c.say("user", "More")
		h.ask("POST", "/v1/responses", c.body()).want(t, http.StatusBadRequest,
			fmt.Sprintf(`refers to the item \"`+id+`\" twice`, number))
	}
	c.items = nil
	for i := range 201 {
		refer(fmt.Sprintf("msg_in_%d", number+i))
	}
	h.ask("POST", "/v1/responses", c.body()).want(t, http.StatusBadRequest,
		"refers to 201 items; at most 200 are allowed")
}

// TestAMessageAfterAFailedOne checks that a history without an answer to a failed message is its conversation's.
func TestAMessageAfterAFailedOne(t *testing.T) {
	h := newEnv(t)
	c := &chat{env: h}
	first := c.turn("Hello", "Hi.")
	c.say("user", "Break")
	c.send()
	h.dispatch("clerk").write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete, Data: []byte(`{}`)}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			Reply: "sorry"},
	}, turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"})
	if next := c.turn("Once more", "Fine."); next.Conversation.ID != first.Conversation.ID ||
		h.bodyOf(next) != "Once more" {
		t.Errorf("it is in %q, %q", next.Conversation.ID, h.bodyOf(next))
	}
}

// TestARepeatWithAHistory checks that a repeat is one response also after its conversation has gone on.
func TestARepeatWithAHistory(t *testing.T) {
	h := newEnv(t)
	c := &chat{env: h}
	c.turn("Hello", "Hi.")
	c.auth = []string{"Idempotency-Key", "k"}
	c.say("user", "Once")
	got := make(chan response, 3)
	for range 3 {
		go func() { got <- c.send() }()
	}
	first := <-got
	for range 2 {
		if again := <-got; again.ID != first.ID {
			t.Errorf("a repeat is %s, the first was %s", again.ID, first.ID)
		}
	}
	h.answerNext("Done.")
	if again := c.send(); again.ID != first.ID {
		t.Errorf("after its end a repeat is %s, the first was %s", again.ID, first.ID)
	}
	c.items[0]["content"] = "Another"
	h.ask("POST", "/v1/responses", c.body(), c.auth...).want(t, http.StatusConflict, "idempotency key")
}

func TestConversations(t *testing.T) {
	h := newEnv(t)
	type conversation struct {
		ID, Object string
		CreatedAt  int64 `json:"created_at"`
		Metadata   map[string]string
	}
	create := func(body string) conversation {
		t.Helper()
		a := h.ask("POST", "/v1/conversations", body)
		a.want(t, http.StatusOK, `"object":"conversation"`)
		c := decode[conversation](t, a)
		if !strings.HasPrefix(c.ID, "conv_") || c.CreatedAt == 0 || c.Metadata == nil {
			t.Errorf("%s: it is %s", body, a.body)
		}
		return c
	}
	for _, body := range []string{"", "{}", `{"metadata":null,"items":null}`, `{"metadata":{},"items":[]}`} {
		create(body)
	}
	c := create(`{"metadata":{"order":"17"},"items":[{"type":"message","role":"developer","content":"Be brief."},
		{"type":"message","role":"user","content":"I am Alice."},{"role":"assistant","content":"Hello Alice."}]}`)
	if c.Metadata["order"] != "17" {
		t.Errorf("it is %+v", c)
	}
	h.ask("GET", "/v1/conversations/"+c.ID, "").want(t, http.StatusOK, `"order":"17"`)
	send := func(input string) response {
		t.Helper()
		return h.respond(fmt.Sprintf(`{"model":"clerk","background":true,"conversation":{"id":%q},"input":%s}`, c.ID,
			input))
	}
	r := send(`"Who am I?"`)
	if body := h.bodyOf(r); r.Conversation.ID != c.ID || !strings.Contains(body, "> Be brief.\n") ||
		!strings.Contains(body, "> User:\n> I am Alice.\n") || !strings.HasSuffix(body, "\n\nWho am I?") {
		t.Errorf("the first message is %q", body)
	}
	h.answerNext("Alice.")
	if body := h.bodyOf(
		send(
			`[{"role":"user","content":"I am Alice."},{"role":"assistant","content":"Hello Alice."},{"role":"user","content":"Who am I?"},
		{"role":"assistant","content":"Alice."},{"role":"user","content":"Sure?"}]`)); body != "Sure?" {
		t.Errorf("the second message is %q", body)
	}
	h.answerNext("Sure.")
	for body, code := range map[string]string{
		`{"items":[{"type":"item_reference","id":"msg_1"}]}`: "unsupported_value", `{"items":{}}`: "invalid_type",
		`{"metadata":{"a":1}}`: "invalid_type",
		`[]`:                   "invalid_json", `{"name":"x"}`: "unknown_parameter", `{"items":[` +
			strings.Repeat(`{"role":"user","content":"x"},`, 20) +
			`{"role":"user","content":"x"}]}`: "array_above_max_length",
	} {
		h.ask("POST", "/v1/conversations", body).want(t, http.StatusBadRequest, `"code":"`+code+`"`)
	}
	h.ask("GET", "/v1/conversations/conv_x", "").want(t, http.StatusNotFound,
		`{"error":{"message":"there is no conversation`)
	h.ask("DELETE", "/v1/conversations/"+c.ID, "").want(t, http.StatusMethodNotAllowed, `{"error":{`)

	if _, err := h.Purge(t.Context(), operate.PurgeScope{Agent: "clerk", Conversation: c.ID}); err != nil {
		t.Fatal(err)
	}
	h.ask("GET", "/v1/conversations/"+c.ID, "").want(t, http.StatusNotFound, "there is no conversation")
	old := create(`{"metadata":{"old":"yes"}}`)
	if _, err := h.Pool().Exec(t.Context(),
		"update turnkeeper.api_conversations set created_at = clock_timestamp() - interval '31 days' where id = $1",
		old.ID); err != nil {
		t.Fatal(err)
	}
	young := create(`{"metadata":{"old":"no"}}`)
	if err := h.ForgetConversations(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ask("GET", "/v1/conversations/"+young.ID, "").want(t, http.StatusOK, "no")
	h.ask("GET", "/v1/conversations/"+old.ID, "").want(t, http.StatusNotFound, "there is no conversation")
}

// TestUnusedConversationsAreBounded checks that a token cannot fill the table with conversations that have no message.
func TestUnusedConversationsAreBounded(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	shop := h.token(operate.Token{Name: "shop", Scopes: []string{"send"}})
	mall := h.token(operate.Token{Name: "mall", Scopes: []string{"send"}})
	create := func(token string) answer { return h.ask("POST", "/v1/conversations", "", "Authorization", token) }
	id := decode[struct{ ID string }](t, create(shop)).ID
	_, err := h.Pool().Exec(t.Context(),
		"insert into turnkeeper.api_conversations (id, sent_by, metadata, items) select 'conv_' || n, c.sent_by, '{}', '[]' "+
			"from turnkeeper.api_conversations c, generate_series(1, 998) n where c.id = $1", id)
	if err != nil {
		t.Fatal(err)
	}
	create(shop).want(t, http.StatusOK, "conv_")
	create(shop).want(t, http.StatusUnprocessableEntity, "has created 1000 conversations that have no message")
	create(mall).want(t, http.StatusOK, "conv_")
	h.respond(fmt.Sprintf(`{"model":"clerk","background":true,"conversation":%q,"input":"x"}`, id),
		"Authorization", shop)
	create(shop).want(t, http.StatusOK, "conv_") // one is used now
}

// TestAConversationOfTwoUsers checks that what a token has created stays while one of its users has messages in it.
func TestAConversationOfTwoUsers(t *testing.T) {
	h := newEnv(t)
	id := decode[struct{ ID string }](t, h.ask("POST", "/v1/conversations",
		`{"metadata":{"order":"17"},"items":[{"role":"user","content":"I am Ann."}]}`)).ID
	get := func(status int, contains string) {
		t.Helper()
		h.ask("GET", "/v1/conversations/"+id, "").want(t, status, contains)
	}
	for _, who := range [][2]string{{"clerk", "ann"}, {"clerk", "bob"}, {"desk", "bob"}, {"clerk", "bob"}} {
		r := h.respond(fmt.Sprintf(`{"model":%q,"user":%q,"background":true,"conversation":%q,"input":"x"}`,
			who[0], who[1], id))
		if first := strings.Contains(h.bodyOf(r), "I am Ann."); first != (who[1] == "ann") {
			t.Errorf("the message of %s is %q", who[1], h.bodyOf(r))
		}
		h.dispatch(who[0]).finish("done")
		get(http.StatusOK, `"order":"17"`)
	}
	purge := func(agent, user string) {
		t.Helper()
		if _, err := h.Purge(t.Context(), operate.PurgeScope{Agent: agent, User: user}); err != nil {
			t.Fatal(err)
		}
	}
	purge("clerk", "ann")
	get(http.StatusOK, `"order":"17"`)
	purge("clerk", "bob")
	get(http.StatusOK, `"order":"17"`)
	purge("desk", "bob")
	get(http.StatusNotFound, "there is no conversation")
}

// TestConversationsOfAnotherToken checks that a token finds neither the metadata nor the items of another's
// conversation.
func TestConversationsOfAnotherToken(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	shop := h.token(operate.Token{Name: "shop", Scopes: []string{"send"}})
	mall := h.token(operate.Token{Name: "mall", Scopes: []string{"send"}})
	a := h.ask("POST", "/v1/conversations", `{"items":[{"role":"user","content":"a secret"}]}`, "Authorization", shop)
	a.want(t, http.StatusOK, "")
	id := decode[struct{ ID string }](t, a).ID
	h.ask("GET", "/v1/conversations/"+id, "", "Authorization", mall).want(t, http.StatusNotFound,
		"there is no conversation")
	body := fmt.Sprintf(`{"model":"clerk","background":true,"conversation":%q,"input":"x"}`, id)
	if r := h.respond(body, "Authorization", mall); h.bodyOf(r) != "x" {
		t.Errorf("another token's message is %q", h.bodyOf(r))
	}
}
