package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// Like TestNoSecretComesOut, for everything around a turn: the message itself, MCP servers, a sub-agent,
// webhooks, the HTTP API, the page, OpenAI's API and telemetry with content. Everything that gets a secret
// repeats all of them.
func TestNoSecretComesOutOfTheService(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	telemetry := newCollector(t)
	exportTo(e, telemetry)
	e.Vars["OTEL_EXPORTER_OTLP_HEADERS"] = "api-key=" + headerCanary
	e.Vars["TURNKEEPER_TELEMETRY_CONTENT"] = "true"
	e.Vars["CANARY_KEY"] = keyCanary
	e.WriteFile("key.txt", fileCanary+"\n")
	parsed, err := pgx.ParseConfig(e.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	all := append(canaries(parsed.Password), env.WebhookSecret, env.OldWebhookSecret)
	said := strings.Join(all, " and ")
	gossip := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "your header is "+r.Header.Get("Authorization")+"; "+said, http.StatusInternalServerError)
	}))
	t.Cleanup(gossip.Close)
	shop := env.NewWebhookReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ env.Delivery) {
		http.Error(w, said, http.StatusInternalServerError)
	})
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf(`default_model: test/scripted
log_level: debug
providers:
  test: {base_url: %s, api_key_env: CANARY_KEY}
mcp_servers:
  broken:
    command: [/bin/sh, -c, 'echo "$SECRET"; echo "it is $SECRET" >&2; exit 1']
    env: {SECRET: {file: key.txt}}
  remote:
    url: %s
    headers: {Authorization: {env: CANARY_KEY}}
`, e.ModelURL, gossip.URL))
	e.AddWebhook("shop", shop.URL, "old_secret_env: OLD_HOOK_SECRET")
	e.WriteAgent("clerk", "tools: [mark_none, mark_once, mark_large]", "sub_agents: [helper]",
		"mcp_servers: {broken: [speak], remote: [speak]}", "max_rounds: 8")
	e.WriteAgent("helper", "tools: [mark_none]")
	e.Ledger.SetAnswer("echo", "the tool says "+said)
	// retried
	e.Model.Add(inferencetest.Fault(http.StatusInternalServerError, "server_error", "the provider says "+said))
	e.Model.Then(env.Rounds(
		inferencetest.Calls(
			env.MarkerCall("mark_none", "echo"), env.MarkerCall("mark_once", "label "+said),
			env.MarkerCall("mark_large", "echo"),
			inferencetest.Call{ID: "broken", Name: "broken__speak", Arguments: `{"to":` + env.Quote(said) + `}`},
			inferencetest.Call{ID: "remote", Name: "remote__speak", Arguments: `{"to":` + env.Quote(said) + `}`},
			inferencetest.Call{ID: "spawn", Name: "spawn_agent", Arguments: `{"agent":"helper","task":` + env.Quote(
				"Work with "+said) + `}`},
		),
		drops("Thinking of "+said, "The model says "+said+" in the end."),
	))
	token := strings.TrimSpace(e.Turnctl("tokens", "create", "ana", "--scopes", "send,read,operate").Stdout)
	token = token[strings.LastIndexAny(token, " \n")+1:]
	w := e.StartWorker()
	places := map[string]string{}
	message := env.EnqueueByProgram(e, "clerk", "My keys are "+said+"; keep them.") // it masks them
	turn := e.TurnOf(message)
	if !strings.HasPrefix(turn.Reply.Body, "The model says [redacted]") {
		t.Errorf("the reply is %q", turn.Reply.Body)
	}
	e.Await("a push was refused", "select exists (select from webhook_deliveries where attempts > 0)")
	ask := asker{t, w.APIURL(), token, places}
	var made struct{ ID string }
	_ = json.Unmarshal([]byte(ask.post("/v1/responses", `{"model":"helper","background":true,"input":`+env.Quote(
		"Answer with "+said)+`}`)), &made)
	e.Await("the response is there", "select count(*) = count(closed_at) from messages")
	output := env.Query[string](e, "select id from outputs order by created_at limit 1")
	for _, path := range []string{
		"/", "/turns", "/turns/ID", "/inbox", "/inbox/MESSAGE", "/replies", "/agents", "/lanes", "/schedules",
		"/outputs/OUTPUT", "/sign-in",
		"/v1/turns", "/v1/turns/ID", "/v1/turns/ID/events", "/v1/messages/MESSAGE", "/v1/outbox", "/v1/outputs/OUTPUT",
		"/v1/lanes", "/v1/schedules",
		"/v1/agents", "/v1/scheduler", "/v1/webhooks", "/v1/webhooks/shop/deliveries", "/v1/models",
		"/v1/responses/RESPONSE", "/v1/responses/RESPONSE?stream=true",
		"/v1/responses/RESPONSE/input_items", "/metrics", "/healthz", "/readyz", "/v1/turns/" + headerCanary,
		"/" + headerCanary, "/v1/turns?agent=" + headerCanary,
	} {
		ask.get(strings.NewReplacer("ID", fmt.Sprint(turn.ID), "MESSAGE", fmt.Sprint(message), "OUTPUT", output,
			"RESPONSE", made.ID).Replace(path))
	}
	ask.post("/v1/messages", `{"agent":"nobody","body":`+env.Quote(said)+`}`)
	ask.post("/v1/responses", `{"model":"clerk","input":"x","tools":[{"type":"function","name":`+env.Quote(said)+`}]}`)
	ask.post("/v1/turns/"+fmt.Sprint(turn.ID)+"/retry", `{"anyway":`+env.Quote(said)+`}`)
	ask.token = "tk_" + headerCanary
	ask.get("/v1/turns")
	for _, args := range [][]string{{"show", "1"}, {"explain", "1"}, {"events", "1"}, {"webhooks"}, {"tokens"},
		{"mcp", "list"}, {"doctor"}, {"inbox"}, {"outbox"}} {
		r := e.Turnctl(args...)
		places["turnctl "+strings.Join(args, " ")] = r.Stdout + r.Stderr
	}
	telemetry.awaitSpan("invoke_agent clerk", any1)
	w.Terminate()
	places["the worker's log"], places["what OTLP exports"] = w.Output.String(), telemetry.everything()
	for id, pushes := range shop.Deliveries() {
		places["the push "+id] = pushes[0].Body
	}
	for _, r := range e.Model.Requests() {
		places["the body of a request to the model"] += string(r.Body)
	}
	for table, rows := range e.Rows() {
		places["table "+table] = rows
	}
	seen := 0
	for place, written := range places {
		seen += len(written)
		if i := strings.Index(written, "whsec_"); i >= 0 { // a part of one, too
			t.Errorf("%s contains the beginning of a secret: %s", place, written[max(0, i-80):min(len(written), i+40)])
		}
		for _, canary := range append(all, token) {
			if i := strings.Index(written, canary); i >= 0 {
				t.Errorf("%s contains the secret %q: ...%s...", place, canary,
					written[max(0, i-80):min(len(written), i+len(canary)+40)])
			}
		}
	}
	if len(token) < 20 || seen < 50_000 || !strings.Contains(places["what OTLP exports"], "the tool says [redacted]") ||
		len(shop.Deliveries()) == 0 {
		t.Errorf("the token is %q; the search covered %d bytes, %d pushes, or no content in telemetry", token, seen,
			len(shop.Deliveries()))
	}
}

// An asker sends HTTP requests to a process, and records the answers.
type asker struct {
	t      *testing.T
	base   string
	token  string
	places map[string]string
}

func (a asker) get(path string) string { return a.ask(http.MethodGet, path, "") }

func (a asker) post(path, body string) string { return a.ask(http.MethodPost, path, body) }

func (a asker) ask(method, path, body string) string {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.base+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		a.t.Errorf("%s %s: %s, %v", method, path, resp.Status, err)
	}
	a.places[method+" "+path] = fmt.Sprint(resp.Header) + string(answer)
	return string(answer)
}
