package httpapi

import (
	"net/http"
	"slices"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/httpapi/responses"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/views"
)

// The table of routes dispatches requests and says which scopes they need, and openapi.json is generated
// from it: run "make generate" after a change.

// A Route is one method of one path, with its description.
type Route struct {
	request.Route
	ID           string // of the operation
	Tag          string // group in the description
	Summary      string
	Note         string // further description
	Parameters   []Parameter
	Body         any // value of the Go type of the request's body; nil: no body
	BodyRequired bool
	Responses    []Response // those other than problems

	probe       bool // exempt from the limit of requests in progress
	eventSource bool // on a temporary error, a stream starts and ends, so that an EventSource reconnects
	abortsEarly bool // a stream that ends before its last event ends with a connection error
	strictQuery bool // refuse unknown query parameters
}

// A Parameter is a parameter of a request.
type Parameter struct {
	Name, In string // In is path, query or header
	Type     any    // value of its Go type
	Schema   string // further constraints, in the syntax of the struct tag schema
	Doc      string
	Required bool
}

// A Response describes the responses to a request that have one status.
type Response struct {
	Status  int
	Doc     string
	Type    any     // value of the Go type written as JSON; nil: not JSON
	Other   []Media // alternatives to JSON
	Headers []Header
}

// A Media is a media type other than JSON.
type Media struct {
	Type   string // for example text/plain
	Binary bool   // bytes, not text
	Event  any    // text/event-stream: value of the Go type of the data of each event; nil: a text
	Doc    string
}

// A Header is a header of a response.
type Header struct {
	Name string
	Type any // value of its Go type
	Doc  string
}

// A Problem is the body of every error but those of the Responses API.
type Problem = request.Problem

func get(path, scope string, handle func(*request.Call) error) request.Route {
	return request.Route{Method: http.MethodGet, Path: path, Scope: scope, Handle: handle}
}

func post(path, scope string, handle func(*request.Call) error) request.Route {
	return request.Route{Method: http.MethodPost, Path: path, Scope: scope, Handle: handle}
}

// ofUser lets tokens that are bound to a user use a route.
func ofUser(r request.Route) request.Route {
	r.OfUser = true
	return r
}

func response(status int, doc string, value any, headers ...Header) Response {
	return Response{Status: status, Doc: doc, Type: value, Headers: headers}
}

const (
	forAll     = ""
	forSend    = request.ScopeSend
	forRead    = request.ScopeRead
	forOperate = request.ScopeOperate
	forAnswer  = request.ScopeAnswer

	allAgents = "Requires a token that covers all agents."
	foundPage = "a page; it may have fewer entries than the limit, or none, while next is not null: each request searches 10,000 entries"
)

// Scopes lists the scopes of tokens.
func Scopes() []string { return views.Scopes() }

// Parameters, headers and responses of several routes.
var (
	number = Parameter{Name: "id", In: "path", Type: int64(0), Schema: "minimum=1"}
	wait   = Parameter{Name: "wait", In: "query", Type: "",
		Doc: "time to wait for the reply, 0s to 60s, such as 30s"}
	ofAgent = Parameter{Name: "agent", In: "query", Type: "", Doc: "only this agent"}
	byUser  = Parameter{Name: "user", In: "query", Type: "", Schema: "maxLength=200",
		Doc: "only this user's; a token that is bound to a user sees only that one's anyway"}
	limit = Parameter{Name: "limit", In: "query", Type: 0, Schema: "minimum=1,maximum=100,default=25",
		Doc: "maximum number of entries"}
	cursor = Parameter{Name: "cursor", In: "query", Type: int64(0), Schema: "minimum=0",
		Doc: "next of the previous page"}
	traceparent = Parameter{Name: "traceparent", In: "header", Type: "",
		Doc: "W3C trace context, stored with the message; ignored if invalid"}

	location = Header{"Location", "", "the path of the message"}

	cancelled = []Response{
		response(200, "cancelled now or before", views.Cancelled{}),
		response(202, "cancellation requested; its worker will end it", views.Cancelled{}),
	}
	finished = []Response{
		response(200, "it has finished as requested before", views.Finished{}),
		response(202, "requested; the turn ends with its next model call", views.Finished{}),
	}
)

func idempotencyKey(doc string) Parameter {
	return Parameter{Name: request.IdempotencyKey, In: "header", Type: "", Schema: "maxLength=200", Doc: doc}
}

// searched returns the parameters of a list with a search.
func searched(state any, message, turn, when string) []Parameter {
	return []Parameter{
		ofAgent, byUser,
		{Name: "conversation", In: "query", Type: "",
			Doc: "only this conversation; requires agent, and without user it is that of no user"},
		{Name: "text", In: "query", Type: "", Schema: "maxLength=1000",
			Doc: "only with these words in the first 20,000 characters of " + message +
				`: all words in any order, "a phrase", -without, this or that`},
		{Name: "state", In: "query", Type: state, Doc: "only in this state"},
		{Name: "error_class", In: "query", Type: "", Doc: "only where the " + turn + " ended with this error class"},
		{Name: "since", In: "query", Type: "", Doc: "only " + when +
			" at this time or after it: RFC 3339, or a date; without an offset it is UTC"},
		{Name: "until", In: "query", Type: "", Doc: "only " + when + " before this time"},
		limit, cursor,
	}
}

// Routes lists the routes of the API, without those of the page.
func (a *API) Routes() []Route {
	strict := slices.Concat(a.messages.routes(), a.turns.routes(), a.lanes.routes(), a.schedules.routes(),
		a.webhooks.routes(), a.asking.routes(), a.events.routes())
	for i := range strict {
		strict[i].strictQuery = true
	}
	return slices.Concat(strict, a.openai.routes(), a.service.routes())
}

func (m *messages) routes() []Route {
	const tag = "messages"
	return []Route{
		{
			Route: ofUser(post("/v1/messages", forSend, m.post)), ID: "postMessage", Tag: tag,
			Summary: "Put a message into an agent's inbox",
			Parameters: []Parameter{
				idempotencyKey(
					"valid per agent and user: a repeat with the same key returns the first message, and changes neither its time nor its priority; " +
						"with another body or conversation it is refused (409)"),
				traceparent, wait,
			},
			Body: submission{}, BodyRequired: true,
			Responses: []Response{
				response(201, "accepted; with wait, answered too", messageWithReply{}, location),
				response(200, "accepted before, with the same key", messageWithReply{}, location),
				response(202, "accepted; not answered within wait", messageWithReply{}, location),
			},
		},
		{
			Route: ofUser(get("/v1/messages", forRead, m.list)), ID: "listMessages", Tag: tag,
			Summary:    "Messages, newest first",
			Parameters: searched(turnkeeper.MessageState(""), "the message", "newest turn", "accepted"),
			Responses:  []Response{response(200, foundPage, list[views.Message]{})},
		},
		{
			Route: ofUser(get("/v1/messages/{id}", forSend, m.get)), ID: "getMessage", Tag: tag,
			Summary:    "A message and its reply",
			Parameters: []Parameter{number, wait},
			Responses:  []Response{response(200, "the message", messageWithReply{})},
		},
		{
			Route: ofUser(post("/v1/messages/{id}/cancel", forOperate, m.cancel)), ID: "cancelMessage", Tag: tag,
			Summary: "Cancel a message",
			Note:    "409: the message is already closed.", Parameters: []Parameter{number}, Body: cancellation{},
			Responses: cancelled,
		},
		{
			Route: ofUser(post("/v1/messages/{id}/finish", forOperate, m.finish)), ID: "finishMessage", Tag: tag,
			Summary: "Let the turn of a message finish with what it has",
			Note:    "409: the message still waits, or is closed.", Parameters: []Parameter{number},
			Body:      cancellation{},
			Responses: finished,
		},
		{
			Route: post("/v1/messages/retry", forOperate, m.retryFailed), ID: "retryMessages", Tag: tag,
			Summary: "Retry all failed messages",
			Note:    "After an error, repeat the request to retry the rest.", Body: failedMessages{},
			BodyRequired: true,
			Responses: []Response{response(200,
				"they are in the inbox again as new messages; messages retried before are left out",
				views.BulkRetried{})},
		},
		{
			Route: ofUser(get("/v1/transcript", forRead, m.transcript)), ID: "getTranscript", Tag: tag,
			Summary: "A conversation, newest first: messages, replies, and calls by name",
			Parameters: []Parameter{
				{Name: "agent", In: "query", Type: "", Doc: "the agent", Required: true},
				{Name: "conversation", In: "query", Type: "", Schema: "minLength=1", Doc: "name of the conversation",
					Required: true},
				{Name: "user", In: "query", Type: "", Schema: "maxLength=200",
					Doc: "whose conversation it is; empty: no user's"},
				limit, cursor,
			},
			Responses: []Response{response(200, "a page", list[views.Exchange]{})},
		},
		{
			Route: ofUser(get("/v1/outbox", forRead, m.replies)), ID: "listReplies", Tag: tag,
			Summary: "Replies, oldest first",
			Parameters: []Parameter{
				ofAgent, byUser,
				{Name: "after", In: "query", Type: int64(0), Schema: "minimum=0",
					Doc: "only replies with ids above this one"},
				{Name: "sub_agents", In: "query", Type: false, Schema: "default=true",
					Doc: "false: leave out replies of sub-agents to other agents"},
				limit,
			},
			Responses: []Response{response(200, "a page; next is null only if the page is empty", list[views.Reply]{})},
		},
	}
}

func (t *turns) routes() []Route {
	const tag = "turns"
	return []Route{
		{
			Route: ofUser(get("/v1/turns", forRead, t.list)), ID: "listTurns", Tag: tag, Summary: "Turns, newest first",
			Parameters: searched(turnkeeper.TurnState(""), "its message", "turn", "created"),
			Responses:  []Response{response(200, foundPage, list[views.Turn]{})},
		},
		{
			Route: ofUser(get("/v1/turns/{id}", forRead, t.get)), ID: "getTurn", Tag: tag, Summary: "A turn in detail",
			Parameters: []Parameter{number},
			Responses:  []Response{response(200, "the turn", views.WholeTurn{})},
		},
		{
			Route: ofUser(post("/v1/turns/{id}/cancel", forOperate, t.cancel)), ID: "cancelTurn", Tag: tag,
			Summary: "Cancel a turn",
			Note:    "409: not possible in its state.", Parameters: []Parameter{number}, Body: cancellation{},
			Responses: cancelled,
		},
		{
			Route: ofUser(post("/v1/turns/{id}/finish", forOperate, t.finish)), ID: "finishTurn", Tag: tag,
			Summary:    "Let a turn finish with what it has",
			Note:       "The next model call is the last one, without tools. 409: not possible in its state.",
			Parameters: []Parameter{number}, Body: cancellation{},
			Responses: finished,
		},
		{
			Route: ofUser(post("/v1/turns/{id}/retry", forOperate, t.retry)), ID: "retryTurn", Tag: tag,
			Summary: "Retry a turn's message",
			Note:    "409: not possible in its state.", Parameters: []Parameter{number}, Body: retryBody{},
			Responses: []Response{
				response(201, "it is in the inbox again as a new message", views.Retried{}, location),
				response(200, "the message is due now, or was retried before", views.Retried{}, location),
			},
		},
		{
			Route: ofUser(get("/v1/outputs/{id}", forRead, t.output)), ID: "getOutput", Tag: tag,
			Summary: "The full text or bytes of a tool's result",
			Note:    "410: it has expired: retention has deleted its content.",
			Parameters: []Parameter{
				{Name: "id", In: "path", Type: ""},
				{Name: "from", In: "query", Type: int64(0), Schema: "minimum=0",
					Doc: "first character, or first byte of binary content"},
				{Name: "to", In: "query", Type: int64(0), Schema: "minimum=0", Doc: "end, exclusive"},
			},
			Responses: []Response{{
				Status: 200, Doc: "the content", Other: []Media{{Type: "text/plain"}, {Type: "application/octet-stream",
					Binary: true}},
				Headers: []Header{{"Content-Disposition", "", "attachment, if the content is binary"}},
			}},
		},
	}
}

func (s *events) routes() []Route {
	events := []Media{{Type: "text/event-stream", Event: views.Event{}}}
	return []Route{{
		Route: ofUser(get("/v1/turns/{id}/events", forRead, s.get)), eventSource: true,
		ID: "getEvents", Tag: "turns",
		Summary: "The stored events of a turn, or, with Accept: text/event-stream, the stored and all future ones",
		Parameters: []Parameter{
			number,
			{Name: "after", In: "query", Type: int64(0), Schema: "minimum=0,default=0",
				Doc: "only events with numbers above this one"},
			lastEventID,
			{Name: "limit", In: "query", Type: 0, Schema: "minimum=1,maximum=1000,default=500",
				Doc: "maximum number of events; ignored for streams"},
		},
		Responses: []Response{
			{
				Status: 200, Type: list[views.Event]{}, Other: events,
				Doc: "a page of events, or a stream: id is the event's number, event its type, data an Event. The stream ends after the turn's last event. " +
					"If it ends earlier, reconnect with Last-Event-ID.",
			},
			{Status: 204, Doc: "streams: the client has the turn's last event; do not reconnect"},
		},
	}, {
		Route: ofUser(get("/v1/messages/{id}/events", forSend, s.ofMessage)), eventSource: true, abortsEarly: true,
		ID: "getMessageEvents", Tag: "messages",
		Summary: "The events of a message from its wait to its reply, as a stream: the stored and all future ones",
		Note: "A token with send gets text, names and states of tools, and asks, but no arguments, results or reasoning, and no text of an agent whose " +
			"reply_sink is not allow. A token with read gets all.",
		Parameters: []Parameter{
			number,
			{Name: "after", In: "query", Type: "", Doc: "id of the last event that the client has; empty: none"},
			lastEventID,
		},
		Responses: []Response{
			{
				Status: 200, Other: events,
				Doc: "a stream: id is an opaque position, event the type, data an Event. It ends after message_closed. " +
					"If it ends earlier, reconnect with Last-Event-ID.",
			},
			{Status: 204, Doc: "the client has message_closed; do not reconnect"},
		},
	}}
}

var lastEventID = Parameter{Name: "Last-Event-ID", In: "header", Type: "", Doc: "like after, and takes precedence"}

func (o *lanes) routes() []Route {
	const tag = "operate"
	return []Route{
		{
			Route: get("/v1/lanes", forRead, o.list), ID: "listLanes", Tag: tag, Summary: "Lanes, held lanes first",
			Parameters: []Parameter{ofAgent, limit, cursor},
			Responses:  []Response{response(200, "a page", list[views.Lane]{})},
		},
		{
			Route: get("/v1/workers", forRead, o.workers), ID: "listWorkers", Tag: tag,
			Summary: "Worker processes, without those stopped for more than an hour",
			Note:    allAgents, Responses: []Response{response(200, "workers", list[views.Worker]{})},
		},
		{
			Route: ofUser(get("/v1/agents", forRead, o.agents)), ID: "listAgents", Tag: tag,
			Summary:   "Registered agents",
			Responses: []Response{response(200, "all agents", list[views.Agent]{})},
		},
		{
			Route: get("/v1/agents/{name}", forRead, o.agent), ID: "getAgent", Tag: tag,
			Summary:    "An agent with its models, tools, schedules and survival level",
			Parameters: []Parameter{{Name: "name", In: "path", Type: ""}},
			Responses:  []Response{response(200, "the agent", views.WholeAgent{})},
		},
		{
			Route: get("/v1/doctor", forRead, o.diagnosis), ID: "getDiagnosis", Tag: tag,
			Summary:   "What \"turnctl doctor\" finds in the database",
			Note:      "A token for some agents gets the findings about these. Files of agents, providers and MCP servers are checked by \"turnctl doctor\" alone.",
			Responses: []Response{response(200, "the findings", views.Diagnosis{})},
		},
		{
			Route: get("/v1/model-health", forRead, o.models), ID: "listModelHealth", Tag: tag,
			Summary:   "The models that agents use, and whether they are down",
			Responses: []Response{response(200, "models", list[views.Model]{})},
		},
		{
			Route: get("/v1/levels", forRead, o.levels), ID: "listLevels", Tag: tag,
			Summary:   "The survival levels of agents: what is left of their budgets of the day",
			Responses: []Response{response(200, "the levels", views.Levels{})},
		},
		{
			Route: post("/v1/levels/pin", forOperate, o.pinLevel), ID: "pinLevel", Tag: tag,
			Summary: "Set the survival level of an agent, or of all, in place of the budget",
			Body:    pinning{}, BodyRequired: true,
			Responses: []Response{response(200, "the levels", views.Levels{})},
		},
		{
			Route: post("/v1/levels/unpin", forOperate, o.unpinLevel), ID: "unpinLevel", Tag: tag,
			Summary: "Let the budget decide the survival level again",
			Body:    unpinning{}, BodyRequired: true,
			Responses: []Response{response(200, "the levels", views.Levels{})},
		},
	}
}

func (s *schedules) routes() []Route {
	const tag = "operate"
	return []Route{
		{
			Route: get("/v1/schedules", forRead, s.list), ID: "listSchedules", Tag: tag, Summary: "Schedules",
			Responses: []Response{response(200, "all schedules", list[views.Schedule]{})},
		},
		{
			Route: post("/v1/schedules/{agent}/{name}/run", forOperate, s.run), ID: "runSchedule", Tag: tag,
			Summary: "Run a schedule now, in addition to its slots",
			Note:    "Also runs a paused schedule.", Parameters: []Parameter{{Name: "agent", In: "path", Type: ""},
				{Name: "name", In: "path", Type: ""}},
			Responses: []Response{
				response(201, "its message is in the inbox", views.ScheduleRun{}, location),
				response(200, "a message of the schedule was already waiting; no other is added",
					views.ScheduleRun{}, location),
			},
		},
		{
			Route: get("/v1/scheduler", forRead, s.scheduler), ID: "getScheduler", Tag: tag,
			Summary:   "The state of the scheduler",
			Responses: []Response{response(200, "the scheduler", views.Scheduler{})},
		},
		{
			Route: post("/v1/scheduler/pause", forOperate, s.pauseScheduler), ID: "pauseScheduler", Tag: tag,
			Summary: "Dispatch no more turns; running turns continue",
			Note:    allAgents, Body: pause{}, BodyRequired: true,
			Responses: []Response{response(200, "the scheduler", views.Scheduler{})},
		},
		{
			Route: post("/v1/scheduler/resume", forOperate, s.resumeScheduler), ID: "resumeScheduler", Tag: tag,
			Summary: "Dispatch turns again",
			Note:    allAgents, Responses: []Response{response(200, "the scheduler", views.Scheduler{})},
		},
	}
}

func (h webhooks) routes() []Route {
	const tag = "webhooks"
	return []Route{
		{
			Route: get("/v1/webhooks", forRead, h.list), ID: "listWebhooks", Tag: tag,
			Summary: "Endpoints that replies and asks are pushed to",
			Note:    allAgents, Responses: []Response{response(200, "all webhooks", list[views.Webhook]{})},
		},
		{
			Route: get("/v1/webhooks/{name}/deliveries", forRead, h.deliveries), ID: "listDeliveries", Tag: tag,
			Summary: "Deliveries to a webhook, newest first",
			Parameters: []Parameter{
				{Name: "name", In: "path", Type: "", Doc: "name of the webhook"},
				ofAgent, byUser,
				{Name: "state", In: "query", Type: outbox.DeliveryState(""), Doc: "only in this state"},
				limit, cursor,
			},
			Responses: []Response{response(200, "a page", list[views.Delivery]{})},
		},
	}
}

func (a asking) routes() []Route {
	const tag = "asks"
	return []Route{
		{
			Route: ofUser(get("/v1/asks", forAnswer, a.list)), ID: "listAsks", Tag: tag,
			Summary: "Questions of turns to people, newest first",
			Parameters: []Parameter{
				{Name: "state", In: "query", Type: asks.State(""), Doc: "only in this state"},
				ofAgent, byUser,
				{Name: "turn", In: "query", Type: int64(0), Schema: "minimum=0", Doc: "only of this turn"},
				limit, cursor,
			},
			Responses: []Response{response(200, "a page", list[views.Ask]{})},
		},
		{
			Route: ofUser(get("/v1/asks/{id}", forAnswer, a.get)), ID: "getAsk", Tag: tag, Summary: "An ask",
			Parameters: []Parameter{number},
			Responses:  []Response{response(200, "the ask", views.Ask{})},
		},
		{
			Route: ofUser(post("/v1/asks/{id}/answer", forAnswer, a.answer)), ID: "answerAsk", Tag: tag,
			Summary: "Answer an ask, and resume its turn",
			Note: "400: the answer is invalid for this ask. 403: the ask is for other people or, with four_eyes, the token sent the message that led to it. " +
				"409: the hash is not that of the ask, or the ask is closed.",
			Parameters: []Parameter{number}, Body: askAnswer{}, BodyRequired: true,
			Responses: []Response{response(200,
				"the ask with its answer; a repeat of the same answer by the same person changes nothing",
				views.Ask{})},
		},
	}
}

func (o *openai) routes() []Route {
	const tag = "openai"
	id := Parameter{Name: "id", In: "path", Type: "", Schema: "pattern=^resp_[1-9][0-9]*$"}
	drafts := Parameter{Name: responses.DraftsHeader, In: "header", Type: false,
		Doc: "true: the response's stream has what the model writes while it writes"}
	stream := []Media{{Type: "text/event-stream",
		Doc: "with stream: the events of the Responses API; sequence_number starts at 0"}}
	return []Route{
		{
			Route: ofUser(post("/v1/responses", forSend, o.post)), ID: "createResponse", Tag: tag,
			Summary: "Send a message through OpenAI's Responses API",
			Note:    "Parameters that only tune the model are ignored; unsupported parameters that would change the answer are refused.",
			Parameters: []Parameter{idempotencyKey(
				"a repeat with the same key returns the same response; a different request with it is refused (409)"),
				traceparent, drafts},
			Body: responses.Request{}, BodyRequired: true,
			Responses: []Response{{
				Status: 200, Type: responses.Response{}, Other: stream,
				Doc: "the response: at once with background, else when it is complete, or in its current state after 5 minutes",
			}},
		},
		{
			Route: ofUser(get("/v1/responses/{id}", forSend, o.get)), ID: "getResponse", Tag: tag,
			Summary: "A response in its current state, or its events",
			Parameters: []Parameter{
				id,
				{Name: "stream", In: "query", Type: false,
					Doc: "true: stream its events, from the first or after starting_after"},
				{Name: "starting_after", In: "query", Type: int64(0), Schema: "minimum=0",
					Doc: "sequence_number of the last event the client has; requires stream"},
			},
			Responses: []Response{{Status: 200, Doc: "the response", Type: responses.Response{}, Other: stream}},
		},
		{
			Route: ofUser(get("/v1/responses/{id}/input_items", forSend, o.with((*responses.API).Input))),
			ID:    "listResponseInput", Tag: tag, Summary: "The input of a response",
			Parameters: []Parameter{id}, Responses: []Response{response(200, "one message", responses.InputList{})},
		},
		{
			Route: ofUser(post("/v1/responses/{id}/cancel", forSend, o.with((*responses.API).Cancel))),
			ID:    "cancelResponse", Tag: tag, Summary: "Cancel a response",
			Note: "A response created with another token also requires operate.", Parameters: []Parameter{id},
			Responses: []Response{response(200,
				"the response: cancelled, or already complete, or still in progress if its worker has not ended it within 10 s", responses.Response{})},
		},
		{
			Route: ofUser(post("/v1/conversations", forSend, o.open)), ID: "createConversation", Tag: tag,
			Summary: "Create a conversation for responses",
			Note:    "Without a message it is deleted after 30 days.", Body: responses.ConversationRequest{},
			Responses: []Response{response(200, "the conversation; send its id as conversation", responses.Conversation{})},
		},
		{
			Route: ofUser(get("/v1/conversations/{id}", forSend, o.with((*responses.API).Opened))),
			ID:    "getConversation", Tag: tag, Summary: "A created conversation",
			Parameters: []Parameter{{Name: "id", In: "path", Type: ""}},
			Responses:  []Response{response(200, "the conversation", responses.Conversation{})},
		},
		{
			Route: ofUser(get("/v1/models", forSend, o.with((*responses.API).Models))), ID: "listModels", Tag: tag,
			Summary:   "The agents, as models",
			Responses: []Response{response(200, "the agents that the token covers", responses.ModelList{})},
		},
		{
			Route: ofUser(get("/v1/models/{id}", forSend, o.with((*responses.API).Model))), ID: "getModel", Tag: tag,
			Summary:    "An agent, as a model",
			Parameters: []Parameter{{Name: "id", In: "path", Type: ""}},
			Responses:  []Response{response(200, "the agent", responses.Model{})},
		},
	}
}

func (s *service) routes() []Route {
	const tag = "service"
	return []Route{
		{
			Route: get("/metrics", forRead, s.prometheus), ID: "getMetrics", Tag: tag,
			Summary:   "Metrics of the process, in Prometheus format",
			Note:      allAgents,
			Responses: []Response{{Status: 200, Doc: "metrics", Other: []Media{{Type: "text/plain"}}}},
		},
		{
			Route: get("/openapi.json", forAll, s.description), ID: "getDescription", Tag: tag,
			Summary:   "This document",
			Responses: []Response{response(200, "OpenAPI", map[string]any{})},
		},
		{
			Route: get("/healthz", forAll, s.alive), probe: true, ID: "getHealth", Tag: tag,
			Summary:   "Liveness of the process",
			Responses: []Response{response(200, "alive", health{})},
		},
		{
			Route: get("/readyz", forAll, s.ready), probe: true, ID: "getReadiness", Tag: tag,
			Summary:   "Readiness for requests: 503 while the process stops, the database does not answer, or it has refused a write of the process for 5 s",
			Responses: []Response{response(200, "ready", health{})},
		},
	}
}
