package main

import (
	tk "turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

const (
	about = "Durable turns of AI agents. Times are RFC 3339; names of durations end in _ms; a missing value is null. " +
		"New fields may be added. On loopback no token is required; the scopes of a token that is sent apply."
	server   = "the worker that serves this document; the setting listen is http://127.0.0.1:8722 by default"
	security = "created by \"turnctl tokens create\"; scopes: send, read (includes reading messages and asks), operate, answer"
)

// tags are the groups of routes with their descriptions.
var tags = object{
	{"messages", "the inbox and the outbox"},
	{"turns", "the handling of messages"},
	{"operate", "agents, lanes, workers and schedules"},
	{"webhooks", "delivery of replies and asks to HTTP endpoints"},
	{"asks", "questions of turns to people"},
	{"openai", "OpenAI's Responses API"},
	{"service", "probes, metrics and this document"},
}

// names maps Go types to the names of components, where they differ.
var names = map[string]string{
	"turnkeeper.Usage": "EventUsage", "httpapi.cancellation": "Cancel", "httpapi.retryBody": "Retry",
	"httpapi.failedMessages": "RetryFailed",
	"asks.Kind":              "AskKind", "asks.State": "AskState", "turnkeeper.Effect": "ToolEffect",
	"turnkeeper.Trigger": "MessageTrigger",
	"presence.State":     "WorkerState", "operate.WebhookState": "WebhookState", "diagnosis.Verdict": "DoctorVerdict",
	"views.Check": "DoctorCheck", "waiting.Reason": "WaitReason",
	"views.Silence": "WorkerSilence", "views.Call": "ToolCall", "views.Model": "ModelHealth",
	"responses.Request": "ResponseRequest", "responses.failure": "ResponseFailure",
	"responses.incompleteDetails": "ResponseIncomplete",
	"responses.named":             "ResponseConversation", "responses.usage": "ResponseUsage",
	"responses.own":  "ResponseTurn",
	"responses.item": "ResponseItem",
	"responses.part": "ResponseText", "responses.InputList": "ResponseInput", "responses.ErrorBody": "ResponseError",
}

// docs maps components to descriptions.
var docs = map[string]string{
	"Event":   "An event of a turn or a message; type says which. Ignore unknown types and fields.",
	"Request": "the size of a round's request in relation to the context window; the parts are estimates in tokens, before correction",
}

// fieldSchemas adds to fields what their types and tags cannot say.
var fieldSchemas = map[string]object{
	"ReplyList.next": {{"description", "after for the next page; null: the page is empty, keep the last value"}},
	"EventList.next": {{"description",
		"after for the next page: the number of the last event, or the given after if the page is empty. " +
			"Never null: an open turn will have more events"}},
	"ResponseRequest.input": {{"oneOf", []object{{{"type", "string"}},
		{{"type", "array"}, {"items", object{{"type", "object"}}}}}}},
	"ResponseRequest.conversation": {{"oneOf", []object{
		{{"type", "string"}},
		{{"type", "object"}, {"required", []string{"id"}}, {"properties", object{{"id", object{{"type", "string"}}}}}},
		{{"type", "null"}},
	}}},
}

// An enum lists the values of a named string type.
type enum struct {
	doc    string
	values []string
}

func values[S ~string](doc string, all ...S) enum {
	e := enum{doc: doc}
	for _, v := range all {
		e.values = append(e.values, string(v))
	}
	return e
}

func waitReasons() enum {
	e := enum{doc: "why a message waits; values may be added"}
	for _, row := range waiting.Rows {
		e.values = append(e.values, string(row.Reason))
		e.doc += "\n- " + string(row.Reason) + ": " + row.Meaning
	}
	return e
}

// enums maps names of components to their values.
var enums = map[string]enum{
	"TurnState": values("queued, running and waiting turns are open; degraded: answered, but not as planned",
		tk.TurnQueued, tk.TurnRunning, tk.TurnWaiting, tk.TurnSucceeded, tk.TurnDegraded, tk.TurnFailed,
		tk.TurnCancelled),
	"TurnOutcome": values("how a turn ended; degraded: answered, but not as planned",
		tk.TurnSucceeded, tk.TurnDegraded, tk.TurnFailed, tk.TurnCancelled),
	"MessageState": values("waiting and running messages are open",
		tk.MessageWaiting, tk.MessageRunning, tk.MessageSucceeded, tk.MessageDegraded, tk.MessageFailed,
		tk.MessageCancelled),
	"StopReason": values("why a turn ended; none: the model finished",
		tk.StopNone, tk.StopMaxRounds, tk.StopMaxDuration, tk.StopMaxToolCalls, tk.StopInferenceError, tk.StopBudget,
		tk.StopCancelled, tk.StopWorkerLost, tk.StopFinished, tk.StopWithheld),
	"ToolEffect": values("none: reads only; keyed: may run again with the same key; once: never started twice",
		tk.EffectNone, tk.EffectKeyed, tk.EffectOnce),
	"CallState": values("unknown: started by a lost worker, without a result",
		tk.CallPlanned, tk.CallStarted, tk.CallRunning, tk.CallSucceeded, tk.CallFailed, tk.CallSkipped, tk.CallDenied,
		tk.CallUnknown, tk.CallCancelled),
	"MessageTrigger": values("source of the message", tk.TriggerMessage, tk.TriggerSchedule),
	"DeliveryState":  values("dead: given up", outbox.DeliveryPending, outbox.DeliveryDelivered, outbox.DeliveryDead),
	"AskKind": values("what an ask is about", asks.KindApprove, asks.KindQuestion, asks.KindInput,
		asks.KindSettle, asks.KindBudget, asks.KindReply),
	"AskState": values("of an ask; expired denies; withdrawn: its turn ended, or was asked to finish, first",
		asks.Open, asks.Approved, asks.Denied, asks.Answered, asks.Expired, asks.Withdrawn),
	"WorkerState": values(
		"serving: runs no turns, because it does not have the role worker; silent: sent no heartbeat for too long",
		presence.Alive, presence.Serving, presence.Draining, presence.Silent, presence.Stopped),
	"WantedEnd": values("cancel: at once; finish: after one more model call, with what the turn has",
		turnlog.EndCancel, turnlog.EndFinish),
	"WaitReason": waitReasons(),
	"WebhookState": values(
		"no_worker: no worker has it in its settings; asked_to_wait: the endpoint asked for a pause; failing: the newest attempt failed",
		operate.WebhookStates...),
	"DoctorVerdict": values("of a finding of doctor", diagnosis.Verdicts...),
	"ModelState": values(
		"probing: down, and one turn tries it; unknown: no call is recorded; unused: no agent uses it any more",
		"up", "down", "probing", "unknown", "unused"),
	"SurvivalLevel": values("what is left of an agent's budget of the day: low is under 20 %, critical under 5 %",
		survival.Levels...),
	"DispatchOutcome": values("how a grant ended", "finished", "lost", "handed_back", "deferred",
		"unclaimed", "waiting"),
	"LaneKind": values("one lane for the agent, or one for each of its conversations", "agent", "conversation"),
}
