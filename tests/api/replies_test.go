package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A degraded reply is the same in the outbox, over HTTP, in a webhook, and for a waiting sender.
func TestAReplyIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(
		inferencetest.Calls(env.MarkerCall("mark_once", "a"), inferencetest.Call{Name: "no_such_tool",
			Arguments: "{}"}),
		inferencetest.Fault(http.StatusBadRequest, "invalid_request_error", "the model is on fire"),
	))
	hook := env.NewWebhookReceiver(t, nil)
	e.AddWebhook("hook", hook.URL)
	w := e.StartWorker()
	waited := e.Run("", "enqueue", "--agent", "clerk", "--wait", "--json", "Go.")
	if waited.Code != 7 {
		t.Fatalf("enqueue --wait ended with %d\n%s%s", waited.Code, waited.Stdout, waited.Stderr)
	}
	e.AwaitDeliveries("hook", "delivered", 1)

	outbox := env.Turnctl[[]map[string]any](e, "outbox")
	if len(outbox) != 1 {
		t.Fatalf("the outbox has %v", outbox)
	}
	want := inUTC(t, outbox[0])
	calls, _ := want["calls"].([]any)
	if want["outcome"] != "degraded" || want["stop_reason"] != "inference_error" || want["error_class"] != "invalid" ||
		len(calls) != 2 {
		t.Errorf("the outbox has %v", want)
	}

	var list struct{ Items []map[string]any }
	get(t, w.APIURL()+"/v1/outbox", &list)
	if len(list.Items) != 1 {
		t.Fatalf("the API's outbox has %v", list)
	}
	var message struct{ Reply map[string]any }
	get(t, fmt.Sprintf("%s/v1/messages/%v", w.APIURL(), want["message_id"]), &message)
	var pushed struct{ Data map[string]any }
	for _, d := range hook.Deliveries() {
		if err := json.Unmarshal([]byte(d[0].Body), &pushed); err != nil {
			t.Fatal(err)
		}
	}
	for where, got := range map[string]map[string]any{"GET /v1/outbox": list.Items[0],
		"GET /v1/messages": message.Reply, "the webhook": pushed.Data} {
		if diff := cmp.Diff(want, inUTC(t, got)); diff != "" {
			t.Errorf("%s has another reply:\n%s", where, diff)
		}
	}

	var output map[string]any
	if err := json.Unmarshal([]byte(waited.Stdout), &output); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"outcome", "stop_reason", "error_class", "calls", "turn_id", "message_id"} {
		if diff := cmp.Diff(want[field], output[field]); diff != "" {
			t.Errorf("enqueue --wait has another %s:\n%s", field, diff)
		}
	}

	var response struct{ Turnkeeper map[string]any }
	asked, err := http.Post(w.APIURL()+"/v1/responses", "application/json",
		strings.NewReader(`{"model":"clerk","input":"Go on."}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asked.Body.Close() }()
	if err := json.NewDecoder(asked.Body).Decode(&response); err != nil {
		t.Fatal(err)
	}
	outbox = env.Turnctl[[]map[string]any](e, "outbox")
	second := outbox[slices.IndexFunc(outbox, func(r map[string]any) bool { return r["id"] != want["id"] })]
	for field, name := range map[string]string{"outcome": "outcome", "stop_reason": "continuation_stop_reason",
		"error_class": "error_class", "calls": "calls"} {
		if diff := cmp.Diff(second[field], response.Turnkeeper[name]); diff != "" || second[field] == nil {
			t.Errorf("POST /v1/responses has another %s:\n%s", name, diff)
		}
	}
	if output["reply"] != want["body"] || output["reply_id"] != want["id"] {
		t.Errorf("enqueue --wait has the reply %v, %q", output["reply_id"], output["reply"])
	}
}

// inUTC converts the reply's time to UTC, because programs print local times.
func inUTC(t *testing.T, reply map[string]any) map[string]any {
	t.Helper()
	text, _ := reply["created_at"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("a reply without a time: %v", reply)
	}
	reply["created_at"] = at.UTC().Format(time.RFC3339Nano)
	return reply
}

func get(t *testing.T, url string, into any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
}
