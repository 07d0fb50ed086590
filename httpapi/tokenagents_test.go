package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// word occurs only in the desk's messages, replies, events, outputs and schedules.
const word = "desk-only-7731"

// work runs a turn that has at least one of everything a route shows.
func (h *env) work(agent, text string) (*dispatch, turnkeeper.OutputID) {
	h.t.Helper()
	return h.workAs("", agent, text)
}

func (h *env) workAs(user, agent, text string) (*dispatch, turnkeeper.OutputID) {
	h.t.Helper()
	d := h.turnAs(user, agent, "message "+text)
	key := turnkeeper.CallKey{Round: 1, Ordinal: 1}
	id := turnkeeper.OutputID("output-" + text)
	d.write(turnlog.Entry{
		Round: &turnkeeper.Round{Number: 1, Charged: true, Provider: "p", Model: "m", Attempts: 1,
			Calls: []turnkeeper.ToolCall{{
				Key: key, WireID: "w", Name: "tool", Arguments: `{"text":"` + text + `"}`, ArgsHash: "h",
				Effect: turnkeeper.EffectNone, State: turnkeeper.CallPlanned,
			}}},
	}, turnlog.Consequence{})
	d.write(turnlog.Entry{Results: []turnlog.CallResult{{Key: key, State: turnkeeper.CallSucceeded, Shown: text,
		Preview: text, Output: &turnkeeper.Output{
			ID: id, TurnID: d.id, Call: key, MediaType: "text/plain", Text: text, SizeBytes: int64(len(text)),
			RawBytes: int64(len(text)), Chars: int64(len(text)),
			SHA256: strings.Repeat("a", 64),
		}}}}, turnlog.Consequence{})
	d.say(text)
	d.finish("reply " + text)
	return d, id
}

// TestATokenSeesItsAgentsAlone calls each reading route with a token for one of two agents. Lists must omit the other
// agent, and its objects must get the same response as objects that do not exist.
func TestATokenSeesItsAgentsAlone(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	h.work("clerk", "for-all-to-see")
	desk, output := h.work("desk", word)
	ask := h.opens(h.turn("desk", "message "+word), approval(word))
	if _, err := h.Pool().Exec(t.Context(), "update turnkeeper.schedules set message = $1 where agent = 'desk'",
		word); err != nil {
		t.Fatal(err)
	}
	if err := h.RegisterWebhook(t.Context(), outbox.Webhook{Name: "hook", Origin: "https://hook.example"}); err != nil {
		t.Fatal(err)
	}
	both := h.token(operate.Token{Name: "both", Scopes: everything})
	clerk := h.token(operate.Token{Name: "clerk", Scopes: everything, Agents: []string{"clerk"}})
	answer := decode[response](t, h.ask("POST", "/v1/responses",
		`{"model":"desk","input":"`+word+`","background":true}`, "Authorization", both))
	created := decode[struct{ ID string }](t, h.ask("POST", "/v1/conversations", "", "Authorization", both))
	message := one[int64](h, "select message_id from turnkeeper.turns where id = $1", desk.id)
	ids := func(path string) (real, unknown string) {
		switch {
		case strings.Contains(path, "/messages/"), strings.Contains(path, "/inbox/"):
			return fmt.Sprint(message), "987654321"
		case strings.Contains(path, "/turns/"):
			return fmt.Sprint(desk.id), "987654321"
		case strings.Contains(path, "/outputs/"):
			return string(output), "output-987654321"
		case strings.Contains(path, "/asks/"):
			return fmt.Sprint(ask), "987654321"
		case strings.Contains(path, "/responses/"):
			return answer.ID, "resp_987654321"
		case strings.Contains(path, "/conversations/"):
			return created.ID, "conv_987654321"
		case strings.Contains(path, "/models/"):
			return "desk", "nobody"
		}
		t.Errorf("%s: say here which id it takes", path)
		return "", ""
	}
	pages := []string{
		"GET /", "GET /turns", "GET /turns/{id}", "GET /inbox", "GET /inbox/{id}", "GET /replies", "GET /agents",
		"GET /lanes", "GET /schedules", "GET /outputs/{id}",
		"GET /conversation", "GET /asks", "GET /asks/{id}",
	}
	cookie := h.signIn(clerk)
	forAll := []string{"/v1/webhooks", "/v1/workers"} // 403 for a token limited to some agents
	asked := 0
	for _, pattern := range append(patterns(), pages...) {
		path, reads := strings.CutPrefix(pattern, "GET ")
		if !reads || slices.Contains([]string{"/metrics", "/openapi.json", "/healthz", "/readyz"}, path) {
			continue
		}
		asked++
		headers := []string{"Authorization", clerk}
		if slices.Contains(pages, pattern) {
			headers = []string{"Cookie", cookie}
		}
		if strings.Contains(path, "{id}") {
			real, unknown := ids(path)
			got := h.ask("GET", strings.Replace(path, "{id}", real, 1), "", headers...)
			want := h.ask("GET", strings.Replace(path, "{id}", unknown, 1), "", headers...)
			if got.status != 404 || want.status != 404 || strings.ReplaceAll(refused(got), real,
				"ID") != strings.ReplaceAll(refused(want), unknown, "ID") {
				t.Errorf("%s: another's is answered %d %s, none %d %s", path, got.status, refused(got), want.status,
					refused(want))
			}
			if a := h.ask("GET", strings.Replace(path, "{id}", real, 1), "", "Authorization", both); !slices.Contains(
				pages, pattern) && a.status != 200 {
				t.Errorf("%s: a token for all is answered %d %s", path, a.status, a.body)
			}
			continue
		}
		path = strings.Replace(path, "{name}", "hook", 1)
		for _, query := range []string{"", "?agent=clerk", "?agent=desk", "?agent=Clerk",
			"?agent=desk&conversation=main", "?agent=desk&conversation=main&text=message",
			"?agent=clerk&conversation=main", "?text=message&since=2026-01-01"} {
			a := h.ask("GET", path+query, "", headers...)
			if strings.Contains(string(a.body), word) || query == "" && !slices.Contains(pages, pattern) &&
				strings.Contains(string(a.body), `"desk`) {
				t.Errorf("%s%s shows what is the desk's: %s", path, query, a.body)
			}
			// 400: the route takes no parameters
			if slices.Contains(forAll, path) && a.status != 403 && (query == "" || a.status != 400) {
				t.Errorf("%s%s is answered %d", path, query, a.status)
			}
		}
	}
	if asked < 25 {
		t.Errorf("only %d routes were asked", asked)
	}
	for path, body := range map[string]string{
		fmt.Sprintf("/v1/turns/%d/cancel", desk.id): `{"reason":"x"}`, fmt.Sprintf("/v1/turns/%d/retry",
			desk.id): `{"anyway":true}`,
		"/v1/responses/" + answer.ID + "/cancel": "",
	} {
		if a := h.ask("POST", path, body, "Authorization", clerk); a.status != 404 {
			t.Errorf("%s is answered %d %s", path, a.status, a.body)
		}
	}
	if n := one[int](h, "select count(*) from turnkeeper.requested_ends") +
		one[int](h, "select count(*) from turnkeeper.retries"); n != 0 {
		t.Error("something was done to the desk's")
	}
	if state := one[string](h, "select state from turnkeeper.messages where id > $1 order by id desc limit 1",
		message); state != "waiting" {
		t.Errorf("the desk's response is %s", state)
	}
}

// refused returns the error text of an answer, without the page around it.
func refused(a answer) string {
	if _, after, page := strings.Cut(string(a.body), `<div class="banner bad">`); page {
		said, _, _ := strings.Cut(after, "</div>")
		return said
	}
	return string(a.body)
}
