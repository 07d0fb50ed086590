package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// annas is in everything of the user anna: also in his name.
const annas = "anna-7731"

// twoUsers has what the users anna and bert did in conversations of the same name with one agent, and a token that is
// bound to bert for each scope that goes together.
type twoUsers struct {
	*env
	message, berts   int64
	turn             turnkeeper.TurnID
	output           turnkeeper.OutputID
	askID            int64
	response, bertsR string // ids
	conversation     string // that the token for all created
	tokens           []string
}

func newTwoUsers(t *testing.T, perConversation bool) *twoUsers {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	h.Register("clerk", perConversation)
	u := &twoUsers{env: h}
	if err := h.RegisterWebhook(t.Context(), outbox.Webhook{Name: "hook", Origin: "https://hook.example"}); err != nil {
		t.Fatal(err)
	}
	d, output := h.workAs(annas, "clerk", annas)
	u.turn, u.output = d.id, output
	u.message = one[int64](h, "select message_id from turnkeeper.turns where id = $1", d.id)
	own, _ := h.workAs("bert", "clerk", "mine-bert")
	u.berts = one[int64](h, "select message_id from turnkeeper.turns where id = $1", own.id)
	u.askID = int64(h.opens(h.turnAs(annas, "clerk", "message "+annas), approval(annas)))
	all := h.token(operate.Token{Name: "all", Scopes: everything})
	create := func(user string) string {
		body := fmt.Sprintf(`{"model":"clerk","input":"message %s","user":%q,"conversation":"talk","background":true}`,
			user, user)
		return decode[response](t, h.ask("POST", "/v1/responses", body, "Authorization", all)).ID
	}
	u.response, u.bertsR = create(annas), create("bert")
	u.conversation = decode[struct{ ID string }](t, h.ask("POST", "/v1/conversations", "", "Authorization", all)).ID
	u.tokens = []string{
		all, h.token(operate.Token{Name: "bert", Scopes: everything, User: "bert"}),
		h.token(operate.Token{Name: "answers", Scopes: []string{"answer"}, User: "bert"}),
	}
	return u
}

// ids returns an id of anna's for a path, and one that does not exist.
func (u *twoUsers) ids(path string) (real, unknown string) {
	switch {
	case strings.Contains(path, "/messages/"):
		return fmt.Sprint(u.message), "987654321"
	case strings.Contains(path, "/turns/"):
		return fmt.Sprint(u.turn), "987654321"
	case strings.Contains(path, "/outputs/"):
		return string(u.output), "output-987654321"
	case strings.Contains(path, "/asks/"):
		return fmt.Sprint(u.askID), "987654321"
	case strings.Contains(path, "/responses/"):
		return u.response, "resp_987654321"
	case strings.Contains(path, "/conversations/"):
		return u.conversation, "conv_987654321"
	case strings.Contains(path, "/models/"):
		return "nobody", "nobody"
	}
	u.t.Errorf("%s: say here which id it takes", path)
	return "", ""
}

// TestATokenOfAUserSeesThatUserAlone calls each route with tokens that are bound to a user. Lists must omit the other
// user, whose objects must get the same response as objects that do not exist. A route that nobody has marked as one of
// a user's refuses them.
func TestATokenOfAUserSeesThatUserAlone(t *testing.T) {
	for _, perConversation := range []bool{false, true} {
		t.Run(fmt.Sprintf("lane per conversation %t", perConversation), func(t *testing.T) {
			u := newTwoUsers(t, perConversation)
			for _, token := range u.tokens[1:] {
				for _, pattern := range patterns() {
					u.tryRoute(pattern, token)
				}
			}
			if n := one[int](u.env, "select count(*) from turnkeeper.requested_ends") +
				one[int](u.env, "select count(*) from turnkeeper.retries"); n != 0 {
				t.Error("something was done to anna's")
			}
		})
	}
}

// queries of lists, which a token that is bound to bert may try.
var queries = []string{
	"", "?user=bert", "?user=" + annas, "?agent=clerk", "?agent=clerk&conversation=main",
	"?agent=clerk&conversation=main&user=" + annas, "?text=message",
	"?agent=clerk&conversation=main&text=" + annas, "?state=open", "?text=message&since=2026-01-01", "?user=",
	"?agent=clerk&user=&conversation=main",
}

func (u *twoUsers) tryRoute(pattern, token string) {
	u.t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	if slices.Contains([]string{"/openapi.json", "/healthz", "/readyz"}, path) {
		return
	}
	if !strings.Contains(path, "{id}") {
		path = strings.NewReplacer("{name}", "hook", "{agent}", "clerk").Replace(path)
		for _, query := range queries {
			body := ""
			if method == "POST" {
				body = fmt.Sprintf(`{"agent":"clerk","body":"x","user":%q}`, annas)
			}
			a := u.ask(method, path+query, body, "Authorization", token)
			if text := strings.ReplaceAll(string(a.body), "no user \\\""+annas, ""); a.status < 300 &&
				strings.Contains(text, annas) {
				u.t.Errorf("%s%s shows what is anna's: %s", pattern, query, a.body)
			}
			if method == "POST" && a.status < 300 {
				u.t.Errorf("%s: %d %s", pattern, a.status, a.body)
			}
		}
		return
	}
	body := ""
	if method == "POST" {
		body = `{}`
	}
	real, unknown := u.ids(path)
	got := u.ask(method, strings.Replace(path, "{id}", real, 1), body, "Authorization", token)
	want := u.ask(method, strings.Replace(path, "{id}", unknown, 1), body, "Authorization", token)
	if got.status != want.status || got.status < 400 || strings.ReplaceAll(refused(got), real,
		"ID") != strings.ReplaceAll(refused(want), unknown, "ID") {
		u.t.Errorf("%s: another's is answered %d %s, none %d %s", pattern, got.status, refused(got), want.status,
			refused(want))
	}
}

// TestATokenOfAUserSeesItsOwn checks that what tokens are refused does not hide their own user's.
func TestATokenOfAUserSeesItsOwn(t *testing.T) {
	u := newTwoUsers(t, true)
	for path, want := range map[string]string{
		"/v1/messages": "mine-bert", "/v1/messages?text=mine-bert": "mine-bert", "/v1/turns": `"user":"bert"`,
		"/v1/outbox": "reply mine-bert",
		"/v1/transcript?agent=clerk&conversation=main": "mine-bert", fmt.Sprintf("/v1/messages/%d",
			u.berts): "reply mine-bert",
		"/v1/outputs/output-mine-bert": "mine-bert", "/v1/responses/" + u.bertsR: `"user":"bert"`,
		"/v1/agents": "clerk", "/v1/models": "clerk",
	} {
		u.ask("GET", path, "", "Authorization", u.tokens[1]).want(t, 200, want)
	}
	sent := u.ask("POST", "/v1/messages", `{"agent":"clerk","body":"x"}`, "Authorization", u.tokens[1],
		"Idempotency-Key", "k")
	sent.want(t, 201, `"user":"bert"`)
	u.ask("POST", "/v1/messages", `{"agent":"clerk","body":"x","user":"bert"}`, "Authorization", u.tokens[1],
		"Idempotency-Key", "k").want(t, 200, `"user":"bert"`)
	u.ask("POST", "/v1/messages", `{"agent":"clerk","body":"x","user":"`+annas+`"}`, "Authorization", u.tokens[1]).
		want(t, 403, "this token is bound to another user than")
	u.ask("POST", "/v1/messages", `{"agent":"clerk","body":"mine","user":"`+annas+`"}`, "Authorization", u.tokens[0],
		"Idempotency-Key", "k").want(t, 201, annas)
}

// TestMessagesToSubAgents checks that a token that may only send sees no message to a sub-agent: it holds what its
// parent knows.
func TestMessagesToSubAgents(t *testing.T) {
	u := newTwoUsers(t, true)
	u.Exec("update turnkeeper.messages set sent_by = 'turn:1' where id = $1", u.berts)
	sends, reads := u.token(operate.Token{Name: "sends", Scopes: []string{"send"}}),
		u.token(operate.Token{Name: "reads", Scopes: []string{"read"}})
	path := fmt.Sprintf("/v1/messages/%d", u.berts)
	u.ask("GET", path, "", "Authorization", sends).want(t, 404, "there is no message")
	u.ask("GET", path, "", "Authorization", reads).want(t, 200, "reply mine-bert")
}

// TestListsOfOneUser filters the lists of a token for all users.
func TestListsOfOneUser(t *testing.T) {
	u := newTwoUsers(t, false)
	answers := u.token(operate.Token{Name: "reads-asks", Scopes: []string{"answer"}})
	for path, token := range map[string]string{
		"/v1/messages": u.tokens[0], "/v1/messages?text=message": u.tokens[0],
		"/v1/messages?agent=clerk&conversation=main": u.tokens[0], "/v1/turns": u.tokens[0],
		"/v1/turns?agent=clerk&conversation=main": u.tokens[0], "/v1/outbox": u.tokens[0],
		"/v1/transcript?agent=clerk&conversation=main": u.tokens[0],
		"/v1/asks": answers, "/v1/asks?state=open": answers, fmt.Sprintf("/v1/asks?turn=%d", u.turn+2): answers,
	} {
		with := "?"
		if strings.Contains(path, "?") {
			with = "&"
		}
		a := u.ask("GET", path+with+"user=bert", "", "Authorization", token)
		a.want(t, 200, "")
		if strings.Contains(string(a.body), annas) || strings.Contains(string(a.body), "bert") == strings.Contains(
			path, "asks") {
			t.Errorf("%s of bert: %s", path, a.body)
		}
		u.ask("GET", path+with+"user="+annas, "", "Authorization", token).want(t, 200, annas)
	}
	// A conversation that is named without a user is that of nobody.
	if a := u.ask("GET", "/v1/messages?agent=clerk&conversation=main", "", "Authorization",
		u.tokens[0]); strings.Contains(string(a.body), annas) {
		t.Errorf("the conversation of no user: %s", a.body)
	}
	u.ask("GET", "/v1/messages?user=", "", "Authorization", u.tokens[0]).want(t, 400, "user is empty")
	u.ask("GET", "/v1/messages?user=a%0Ab", "", "Authorization", u.tokens[0]).want(t, 400, "control character")
	u.ask("GET", "/v1/messages?agent=clerk&conversation=main&user=", "", "Authorization", u.tokens[0]).want(t, 200, "")
	u.ask("GET", "/v1/messages?user=bert", "", "Authorization", u.tokens[1]).want(t, 200, "mine-bert")
	u.ask("GET", "/v1/messages?user="+annas, "", "Authorization", u.tokens[1]).want(t, 404, "this token sees no user")
	deliveries := u.ask("GET", "/v1/webhooks/hook/deliveries?user=bert", "", "Authorization", u.tokens[0])
	if deliveries.want(t, 200, `"user":"bert"`); strings.Contains(string(deliveries.body), annas) {
		t.Errorf("the deliveries of bert: %s", deliveries.body)
	}
}

// TestWaitsHideOtherUsers changes the lanes of an agent, so that a message waits for a turn whose lane has another
// user's name.
func TestWaitsHideOtherUsers(t *testing.T) {
	u := newTwoUsers(t, true)
	u.Register("clerk", false)
	id := decode[struct{ ID int64 }](t, u.ask("POST", "/v1/messages", `{"agent":"clerk","body":"x"}`, "Authorization",
		u.tokens[1])).ID
	lane := storagetest.One[string](u.DB, "select string_agg(lane, ' ') from turnkeeper.blockers($1)", id)
	if !strings.Contains(lane, annas) {
		t.Fatalf("it waits for %s", lane)
	}
	path := fmt.Sprintf("/v1/messages/%d", id)
	a := u.ask("GET", path, "", "Authorization", u.tokens[1])
	a.want(t, 200, "lanes_changed")
	if strings.Contains(string(a.body), annas) {
		t.Errorf("%s", a.body)
	}
	u.ask("GET", path, "", "Authorization", u.tokens[0]).want(t, 200, annas)
}

// TestAResponseContinuesItsUsersOwn tries to continue the response of another user.
func TestAResponseContinuesItsUsersOwn(t *testing.T) {
	u := newTwoUsers(t, true)
	send := func(token, user, previous string) answer {
		named := ""
		if user != "" {
			named = fmt.Sprintf(`"user":%q,`, user)
		}
		return u.ask("POST", "/v1/responses", fmt.Sprintf(
			`{"model":"clerk","input":"x",%s"previous_response_id":%q,"background":true}`, named, previous),
			"Authorization", token)
	}
	for _, c := range []struct{ token, user, previous, want string }{
		{u.tokens[0], "bert", u.response, "there is no response"},
		{u.tokens[0], "", u.response, "there is no response"},
		{u.tokens[1], "", u.response, "there is no response"},
		{u.tokens[1], annas, u.response, "this token is bound to another user"},
		{u.tokens[0], "a\nb", u.bertsR, "control character"},
		{u.tokens[0], "bert", u.bertsR, ""},
		{u.tokens[1], "", u.bertsR, ""},
		{u.tokens[1], "bert", u.bertsR, ""},
	} {
		a := send(c.token, c.user, c.previous)
		if c.want != "" {
			a.want(t, 400, c.want)
			continue
		}
		a.want(t, 200, `"user":"bert"`)
		if got := decode[response](t, a); got.Conversation.ID != "talk" {
			t.Errorf("it continues %s", got.Conversation.ID)
		}
	}
}

// TestAResponseOfATokensAgent sends to an agent that the token covers, and to another.
func TestAResponseOfATokensAgent(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	token := h.token(operate.Token{Name: "desk", Scopes: []string{"send"}, Agents: []string{"desk"}})
	h.ask("POST", "/v1/responses", `{"model":"clerk","input":"x","background":true}`, "Authorization", token).want(t,
		404, "model_not_found")
	h.ask("POST", "/v1/responses", `{"model":"desk","input":"x","background":true}`, "Authorization", token).want(t,
		200, `"queued"`)
}

// TestWhoSeesTheLastError reads a message whose last attempt failed with a token that may only send, and with one that
// may read.
func TestWhoSeesTheLastError(t *testing.T) {
	u := newTwoUsers(t, true)
	u.Exec("update turnkeeper.messages set last_error = 'the key is wrong' where id = $1", u.berts)
	path := fmt.Sprintf("/v1/messages/%d", u.berts)
	sends, reads := u.token(operate.Token{Name: "sends", Scopes: []string{"send"}}),
		u.token(operate.Token{Name: "reads", Scopes: []string{"read"}})
	u.ask("GET", path, "", "Authorization", reads).want(t, 200, "the key is wrong")
	a := u.ask("GET", path, "", "Authorization", sends)
	if a.want(t, 200, "mine-bert"); strings.Contains(string(a.body), "the key is wrong") {
		t.Errorf("a sender is shown %s", a.body)
	}
}

// TestThePageIsNotForOneUser signs in with a token that is bound to a user.
func TestThePageIsNotForOneUser(t *testing.T) {
	u := newTwoUsers(t, false)
	token := strings.TrimPrefix(u.tokens[1], "Bearer ")
	a := u.submit("/sign-in", url.Values{"token": {token}})
	if a.status != 403 || !strings.Contains(string(a.body), "this token is bound to a user") ||
		one[int](u.env, "select count(*) from turnkeeper.page_sessions") != 0 {
		t.Errorf("signing in is answered %d", a.status)
	}
	for _, path := range []string{"/", "/turns", "/inbox", "/lanes", fmt.Sprintf("/turns/%d", u.turn),
		fmt.Sprintf("/inbox/%d", u.berts)} {
		if a := u.ask("GET", path, "", "Authorization", u.tokens[1], "Accept", "text/html"); a.status < 300 ||
			strings.Contains(string(a.body), annas) {
			t.Errorf("%s is answered %d", path, a.status)
		}
	}
}

// TestThePageShowsWhoseAConversationIs reads and searches two users' conversations of one name on the page.
func TestThePageShowsWhoseAConversationIs(t *testing.T) {
	u := newTwoUsers(t, false)
	cookie := u.signIn(u.tokens[0])
	for path, want := range map[string]string{
		"/turns": "main of " + annas, fmt.Sprintf("/turns/%d", u.turn): "main of " + annas, fmt.Sprintf("/inbox/%d",
			u.message): "main of " + annas,
		"/conversation?agent=clerk&conversation=main&user=" + annas: "message " + annas,
		"/conversation?agent=clerk&conversation=main&user=bert":     "message mine-bert",
		"/inbox?user=": "message " + annas, "/inbox?user=bert": "message mine-bert", "/turns?user=bert": "main of bert",
		"/replies?user=bert": "reply mine-bert",
	} {
		a := u.ask("GET", path, "", "Cookie", cookie)
		if a.status != 200 || !strings.Contains(string(a.body), want) || strings.Contains(path, "=bert") &&
			strings.Contains(string(a.body), annas) {
			t.Errorf("%s is answered %d %s", path, a.status, a.body)
		}
	}
	if a := u.ask("GET", "/conversation?agent=clerk&conversation=main", "", "Cookie", cookie); a.status != 404 {
		t.Errorf("the conversation of no user is answered %d", a.status)
	}
	sent := u.submit("/inbox", url.Values{"agent": {"clerk"}, "user": {"carl"}, "body": {"hello"}, "number": {"1"}},
		"Cookie", cookie)
	if n := one[int](u.env, "select count(*) from turnkeeper.messages where user_name = 'carl'"); n != 1 {
		t.Errorf("sending is answered %d, and there are %d messages", sent.status, n)
	}
}
