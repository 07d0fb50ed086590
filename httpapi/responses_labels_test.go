package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// labelledTurn answers the next message of clerk in a turn that has the label private.
func (h *env) labelledTurn(reply string) {
	h.t.Helper()
	d := h.dispatch("clerk")
	d.write(turnlog.Entry{Labels: []policy.Mark{{Label: policy.Private, Source: "a file"}}}, turnlog.Consequence{})
	d.finish(reply)
}

// labelsOf returns the labels of a message, with their sources.
func (h *env) labelsOf(id any) string {
	h.t.Helper()
	return one[string](h,
		"select coalesce(string_agg(label || ' from ' || source, ', '), '') from turnkeeper.labels where kind = 'message' and id = $1::text::bigint", fmt.Sprint(id))
}

// TestLabelsOfRepliesThatComeBack sends the text of a labelled reply back in each way that the API has. The new message
// has the reply's labels.
func TestLabelsOfRepliesThatComeBack(t *testing.T) {
	h := newEnv(t)
	const secret = "The code is\n 17."
	c := &chat{env: h, options: `,"user":"ann"`}
	c.say("user", "Read the file")
	first := strings.TrimPrefix(c.send().ID, "resp_")
	h.labelledTurn(secret)

	respond := func(fields string) string {
		return strings.TrimPrefix(h.respond(`{"model":"desk","background":true,`+fields+`}`).ID, "resp_")
	}
	text := `"The code\nis 17."` // white space makes no difference
	said := func(user, role string) string {
		return fmt.Sprintf(
			`"user":%q,"input":[{"role":"user","content":"Edited"},{"role":%q,"content":%s},{"role":"user","content":"More"}]`, user, role, text)
	}
	created := func() string {
		a := h.ask("POST", "/v1/conversations",
			`{"items":[{"role":"user","content":"Hi"},{"role":"assistant","content":`+text+`}]}`)
		a.want(t, http.StatusOK, "")
		return decode[struct{ ID string }](t, a).ID
	}
	byReference := strings.TrimPrefix(
		h.respond(`{"model":"clerk","background":true,"user":"ann","input":[{"role":"user","content":"Edited"},
		{"type":"item_reference","id":"msg_`+first+`"},{"role":"user","content":"More"}]}`).ID, "resp_")
	enqueue := func(user, body string) turnkeeper.MessageID {
		id, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "desk", User: user, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	edited := enqueue("ann", "harmless")
	if _, err := h.Pool().Exec(t.Context(), "update turnkeeper.messages set body = $2 where id = $1", edited,
		secret); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]any{
		"a reference":             byReference,
		"a history":               respond(said("ann", "assistant")),
		"a message of the user":   respond(said("ann", "user")),
		"a message of the system": respond(said("ann", "system")),
		"instructions":            respond(`"user":"ann","input":"More","instructions":` + text),
		"the input":               respond(`"user":"ann","input":` + text),
		"one of two parts": respond(
			`"user":"ann","input":[{"role":"user","content":"Hi"},{"role":"assistant","content":"I look."},{"role":"assistant","content":` + text + `},{"role":"user","content":"More"}]`),
		"one of two contents": respond(
			`"user":"ann","input":[{"role":"user","content":[{"type":"input_text","text":"See:"},{"type":"input_text","text":` + text + `}]}]`),
		"a named conversation":        respond(`"conversation":"other",` + said("ann", "assistant")),
		"items of a conversation":     respond(fmt.Sprintf(`"user":"ann","input":"More","conversation":%q`, created())),
		"a plain message":             enqueue("ann", secret),
		"a message that was changed":  edited,
		"a reference to a referrer":   h.refers("msg_in_" + byReference),
		"the reply to such a message": h.replyRefers(byReference),
	} {
		if got := h.labelsOf(id); got != "private from a file" {
			t.Errorf("%s has the labels %q", what, got)
		}
	}
	for what, id := range map[string]any{
		"another text":           enqueue("ann", "The code is 18."),
		"another user's history": respond(said("eve", "assistant")),
		"another user's message": enqueue("eve", secret),
		"the conversation that goes on": strings.TrimPrefix(
			h.respond(`{"model":"clerk","background":true,"previous_response_id":"resp_`+first+
				`","user":"ann","input":"Next"}`).ID, "resp_"),
	} {
		if got := h.labelsOf(id); got != "" {
			t.Errorf("%s has the labels %q", what, got)
		}
	}
}

// refers sends ann's message that refers to an item in another conversation.
func (h *env) refers(item string) string {
	h.t.Helper()
	return strings.TrimPrefix(
		h.respond(`{"model":"clerk","background":true,"user":"ann","input":[{"type":"item_reference","id":"`+item+`"},
		{"role":"assistant","content":"Yes"},{"role":"user","content":"More"}]}`).ID, "resp_")
}

// replyRefers answers a message with the labels that it has, as a worker does, and refers to the reply.
func (h *env) replyRefers(id string) string {
	h.t.Helper()
	d := h.dispatch("clerk")
	record, err := h.Load(h.t.Context(), d.id, one[turnkeeper.GrantID](h,
		"select grant_id::text from turnkeeper.lease_log where turn_id = $1 order by granted_at desc limit 1", d.id))
	if err != nil || fmt.Sprint(record.Message.ID) != id {
		h.t.Fatalf("the turn is of message %d, not %s: %v", record.Message.ID, id, err)
	}
	d.write(turnlog.Entry{Labels: record.Labels.Before}, turnlog.Consequence{})
	d.finish("Something else.")
	return h.refers("msg_" + id)
}
