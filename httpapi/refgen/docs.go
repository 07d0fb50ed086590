package main

import tk "turnkeeper"

const (
	about = "Durable turns of AI agents. Times are RFC 3339; durations end in _ms; what does not exist (yet) is null. " +
		"New fields may be added. On loopback no token is needed; one that is sent is held to its scopes."
	server   = "the address of the worker that gives this document: http://127.0.0.1:8722 unless the setting listen says otherwise"
	security = "made by turnctl tokens create; scopes send, read (which includes reading messages) and operate"
)

// tags are the groups of routes, with what they are.
var tags = object{
	{"messages", "what is sent, and what becomes of it"},
	{"turns", "how messages are handled"},
	{"operate", "what runs, what waits, and what is due next"},
	{"webhooks", "where replies are pushed to"},
	{"openai", "OpenAI's Responses API"},
	{"service", "this process"},
}

// names are those of components whose Go type has another name.
var names = map[string]string{
	"httpapi.cancellation": "Cancel", "httpapi.retryBody": "Retry", "httpapi.failedMessages": "RetryFailed",
	"views.Silence": "WorkerSilence", "views.Call": "ToolCall", "views.Model": "ModelHealth",
	"responses.Request": "ResponseRequest", "responses.failure": "ResponseFailure", "responses.incompleteDetails": "ResponseIncomplete",
	"responses.named": "ResponseConversation", "responses.usage": "ResponseUsage", "responses.own": "ResponseTurn", "responses.item": "ResponseItem",
	"responses.part": "ResponseText", "responses.InputList": "ResponseInput", "responses.ErrorBody": "ResponseError",
}

// docs are the descriptions of components.
var docs = map[string]string{
	"Event": "A reader skips types and fields that it does not know. round_rollback voids what its round had streamed before; " +
		"turn_complete and turn_error are the last event of a turn.",
	"Request": "how the request of a round stood against the context window; parts are estimates in tokens before correction",
}

// fieldSchemas are what neither the type nor the tag of a field says.
var fieldSchemas = map[string]object{
	"ReplyList.next": {{"description", "after for the next page; null: the page is empty, so keep the last one"}},
	"EventList.next": {{"description", "after for the next page: the number of the last event, or what was asked for where the page is empty. " +
		"It is never null: a turn that is open has more later"}},
	"ResponseRequest.input": {{"oneOf", []object{{{"type", "string"}}, {{"type", "array"}, {"items", object{{"type", "object"}}}}}}},
	"ResponseRequest.conversation": {{"oneOf", []object{
		{{"type", "string"}},
		{{"type", "object"}, {"required", []string{"id"}}, {"properties", object{{"id", object{{"type", "string"}}}}}},
		{{"type", "null"}},
	}}},
}

// An enum is the values of a named string.
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

// enums are by the names of their Go types, or by those that the tag schema has.
var enums = map[string]enum{
	"TurnState": values("queued, running and waiting turns are open; degraded: answered, but not as asked",
		tk.TurnQueued, tk.TurnRunning, tk.TurnWaiting, tk.TurnSucceeded, tk.TurnDegraded, tk.TurnFailed, tk.TurnCancelled),
	"Outcome": values("how a turn ended; degraded: answered, but not as asked",
		tk.TurnSucceeded, tk.TurnDegraded, tk.TurnFailed, tk.TurnCancelled),
	"MessageState": values("waiting and running messages are open",
		tk.MessageWaiting, tk.MessageRunning, tk.MessageAnswered, tk.MessageFailed, tk.MessageCancelled),
	"StopReason": values("why a turn ended; none: the model had nothing more to ask",
		tk.StopNone, tk.StopMaxRounds, tk.StopMaxDuration, tk.StopMaxToolCalls, tk.StopInferenceError, tk.StopBudget, tk.StopCancelled, tk.StopWorkerLost),
	"Effect": values("none: reads only; keyed: may run again with the same key; once: is never started twice",
		tk.EffectNone, tk.EffectKeyed, tk.EffectOnce),
	"CallState": values("unknown: started by a lost worker, and nobody knows what happened",
		tk.CallPlanned, tk.CallStarted, tk.CallRunning, tk.CallSucceeded, tk.CallFailed, tk.CallSkipped, tk.CallDenied, tk.CallUnknown, tk.CallCancelled),
	"Trigger":       values("what the message came by", tk.TriggerMessage, tk.TriggerSchedule),
	"DeliveryState": values("dead: given up", tk.DeliveryPending, tk.DeliveryDelivered, tk.DeliveryDead),
	"WorkerState": values("serving: it takes no turns, for it does not have the role worker; silent: for longer than a live worker is",
		tk.WorkerAlive, tk.WorkerServing, tk.WorkerDraining, tk.WorkerSilent, tk.WorkerStopped),
	"WaitReason": values("why a message waits; more may be added",
		tk.WaitUnknownAgent, tk.WaitRetired, tk.WaitNotDue, tk.WaitEarlier, tk.WaitLaneHeld, tk.WaitBackoff, tk.WaitCalls, tk.WaitBudget, tk.WaitDeferred,
		tk.WaitNotTaken, tk.WaitSilent, tk.WaitPaused, tk.WaitHoldOff, tk.WaitScheduler, tk.WaitNoWorker, tk.WaitNoSlot, tk.WaitModel, tk.WaitTick),
	"ModelState": values("probing: it is down, and a turn tries it; unknown: nothing tells that it was ever asked; unused: no agent asks it any more",
		"up", "down", "probing", "unknown", "unused"),
	"DispatchOutcome": values("how a grant ended", "finished", "lost", "handed_back", "deferred", "unclaimed", "waiting"),
	"LaneKind":        values("one lane for the agent, or one for each of its conversations", "agent", "conversation"),
}
