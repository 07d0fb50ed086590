package api_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// The canaries: a text with one of them is a leak.
const (
	keyCanary    = "sk-canary+bird/4711=/key"
	headerCanary = "canary-header-93c1f2aa"
	fileCanary   = "canary-file-7d20b8e1"
)

// canaries returns the secrets of an Env, in every encoding in which they are sent.
func canaries(databasePassword string) (all []string) {
	for _, secret := range []string{keyCanary, headerCanary, fileCanary, databasePassword} {
		all = append(all, secret)
		for _, form := range []string{url.QueryEscape(secret), url.PathEscape(secret),
			env.Quote(secret)[1 : len(env.Quote(secret))-1]} {
			if form != secret {
				all = append(all, form)
			}
		}
	}
	return all
}

// The secrets of a configuration come in from every external source. No output or table contains one.
func TestNoSecretComesOut(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.Vars["CANARY_KEY"] = keyCanary
	e.Vars["CANARY_HEADER"] = headerCanary
	e.WriteFile("key.txt", fileCanary+"\n")
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf(`default_model: test/scripted
log_level: debug
providers:
  test:
    base_url: %[1]s
    api_key_env: CANARY_KEY
    headers: {X-Auth-Token: {env: CANARY_HEADER}}
  other:
    base_url: %[1]s
    api_key_file: key.txt
`, e.ModelURL))
	e.WriteAgent("clerk", "tools: [mark_none, mark_once, mark_large, http_get, note_write]", "max_rounds: 8")
	e.WriteAgent("other", "model: other/scripted")
	parsed, err := pgx.ParseConfig(e.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	all := canaries(parsed.Password)
	said := strings.Join(all, " and ")

	e.Ledger.SetAnswer("echo", "the tool says "+said)
	address := fmt.Sprintf("http://user:%s@127.0.0.1:1/path?key=%s", url.QueryEscape(keyCanary),
		url.QueryEscape(keyCanary))
	// retried
	e.Model.Add(inferencetest.Fault(http.StatusInternalServerError, "server_error", "the provider says "+said))
	e.Model.Then(env.Rounds(
		inferencetest.Calls(env.MarkerCall("mark_none", "echo"), env.MarkerCall("mark_once", "label "+said),
			env.MarkerCall("mark_large", "echo")),
		inferencetest.Calls(
			inferencetest.Call{ID: "get", Name: "http_get", Arguments: `{"url":` + env.Quote(address) + `}`},
			inferencetest.Call{ID: "note", Name: "note_write", Arguments: `{"name":"n","text":` +
				env.Quote(said) + `}`},
			inferencetest.Call{ID: "bad", Name: "mark_once", Arguments: `{"no_such":` + env.Quote(said) + `}`},
			inferencetest.Call{ID: "unknown", Name: "tool_" + headerCanary, Arguments: `{}`},
		),
		drops("Thinking of "+said, "The model says "+said+" in the end."),
	))
	w := e.StartWorker()
	outputs := map[string]string{}
	record := func(name string, r env.Result) { outputs[name+" stdout"], outputs[name+" stderr"] = r.Stdout, r.Stderr }
	record("enqueue --wait", e.Run("", "enqueue", "--agent", "clerk", "--wait", "--verbose", "Speak."))
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Fault(http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided: "+said)
	})
	failing := e.Enqueue("other", "Speak.")
	e.Await("the turn failed", "select exists (select from turns where message_id = $1 and state = 'failed')", failing)
	record("enqueue of an unknown agent", e.Run("", "enqueue", "--agent", "nobody", "Hello"))
	for _, args := range [][]string{
		{"show", "1"}, {"show", "latest"}, {"turns"}, {"inbox"}, {"outbox"}, {"lanes"}, {"models"}, {"schedules"},
		{"scheduler"}, {"workers"}, {"agents", "check"}, {"doctor"}, {"migrate"},
	} {
		record("turnctl "+strings.Join(args, " "), e.Turnctl(args...))
		record("turnctl -o json "+strings.Join(args, " "), e.Turnctl(append([]string{"-o", "json"}, args...)...))
	}
	e.WantEnd(e.Show(1), "succeeded", "none", 3)
	if reply := e.Show(1).Reply.Body; !strings.HasPrefix(reply, "The model says [redacted]") {
		t.Errorf("the reply is %q", reply)
	}
	w.Terminate()
	outputs["the worker's log"] = w.Output.String()
	outputs["what was streamed"] = env.Query[string](e,
		"select string_agg(data->>'text', '' order by turn_id, seq) from turn_events where type = 'block_delta'")
	for _, r := range e.Model.Requests() {
		outputs["the body of a request to the model"] += string(r.Body)
	}
	for _, m := range e.Ledger.Runs("label " + strings.Repeat("[redacted] and ", len(all)-1) + "[redacted]") {
		outputs["what a tool gets"] += m.Label
	}
	for table, rows := range e.Rows() {
		outputs["table "+table] = rows
	}

	seen := 0
	for place, written := range outputs {
		seen += len(written)
		for _, canary := range all {
			if i := strings.Index(written, canary); i >= 0 {
				t.Errorf("%s contains the secret %q: ...%s...", place, canary,
					written[max(0, i-80):min(len(written), i+len(canary)+40)])
			}
			if strings.Contains(written, hex.EncodeToString([]byte(canary))) {
				t.Errorf("%s contains the secret %q in bytes", place, canary)
			}
		}
	}
	if outputs["what a tool gets"] == "" {
		t.Error("the tool got other arguments than the masked ones")
	}
	if seen < 10_000 || !strings.Contains(outputs["table turnkeeper.journal"], "the tool says [redacted]") {
		t.Errorf("the search covered %d bytes only, or not the calls", seen)
	}
}

// drops streams reasoning and text in pieces of three characters. At some pauses the text so far is written.
// No piece and no event contains a whole secret.
func drops(reasoning, text string) inferencetest.Reply {
	var chunks []string
	chunk := func(delta, finish string) {
		chunks = append(chunks,
			`{"id":"x","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":`+
				delta+`,"finish_reason":`+finish+`}]}`)
	}
	pieces := func(field, text string) {
		for runes := []rune(text); len(runes) > 0; {
			n := min(3, len(runes))
			chunk(`{"`+field+`":`+env.Quote(string(runes[:n]))+`}`, "null")
			runes = runes[n:]
		}
	}
	chunk(`{"role":"assistant"}`, "null")
	pieces("reasoning_content", reasoning)
	pieces("content", text)
	chunk(`{}`, `"stop"`)
	return func(x *inferencetest.Exchange) {
		inferencetest.OpenSSE()(x)
		for i, chunk := range chunks {
			x.Send("data: " + chunk + "\n\n")
			if i%9 == 8 && !x.Wait(env.After(300*time.Millisecond)) {
				return
			}
		}
		x.Send("data: [DONE]\n\n")
	}
}
