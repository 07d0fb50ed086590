package httpapi

import (
	"net/http"
	"slices"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/httpapi/responses"
	"turnkeeper/internal/views"
)

// The table of routes is what requests are dispatched by, what tokens are held to, and what
// openapi.json is generated from: run "make generate" after a change.

// A Route is one method of one path, with its description.
type Route struct {
	request.Route
	ID           string // of the operation
	Tag          string // the group that it is listed in
	Summary      string
	Note         string // more of it; empty: none
	Parameters   []Parameter
	Body         any // a value of the Go type that the request's body is read into; nil: it has none
	BodyRequired bool
	Answers      []Answer // beside problems

	probe       bool // it is answered however many requests are in progress
	eventSource bool // browsers follow it: what is temporary is told by an end of the stream
	strictQuery bool // parameters that are not known are refused
}

// A Parameter is one of a request.
type Parameter struct {
	Name, In string // In: path, query or header
	Type     any    // a value of its Go type
	Schema   string // what the type does not say, as the struct tag schema would
	Doc      string
	Required bool
}

// An Answer is a status that a request is answered with.
type Answer struct {
	Status  int
	Doc     string
	Type    any     // a value of the Go type that is written as JSON; nil: it is not JSON
	Other   []Media // what it may be instead
	Headers []Header
}

// A Media is a type of content that is not JSON.
type Media struct {
	Type   string // such as text/plain
	Binary bool   // and else text
	Doc    string
}

// A Header is one of an answer.
type Header struct {
	Name string
	Type any // a value of its Go type
	Doc  string
}

func get(path, scope string, handle func(*request.Call) error) request.Route {
	return request.Route{Method: http.MethodGet, Path: path, Scope: scope, Handle: handle}
}

func post(path, scope string, handle func(*request.Call) error) request.Route {
	return request.Route{Method: http.MethodPost, Path: path, Scope: scope, Handle: handle}
}

func answer(status int, doc string, value any, headers ...Header) Answer {
	return Answer{Status: status, Doc: doc, Type: value, Headers: headers}
}

const (
	forAll     = ""
	forSend    = request.ScopeSend
	forRead    = request.ScopeRead
	forOperate = request.ScopeOperate

	allAgents = "For tokens of all agents."
	foundPage = "a page; it may hold fewer entries than the limit, even none, while next is not null: a search looks at 10,000 at a time"
)

// Scopes lists what a token can be for.
func Scopes() []string { return views.Scopes() }

// What several routes have.
var (
	number      = Parameter{Name: "id", In: "path", Type: int64(0), Schema: "minimum=1"}
	wait        = Parameter{Name: "wait", In: "query", Type: "", Doc: "how long to wait for the reply, 0s to 60s, such as 30s"}
	ofAgent     = Parameter{Name: "agent", In: "query", Type: "", Doc: "only of this agent"}
	limit       = Parameter{Name: "limit", In: "query", Type: 0, Schema: "minimum=1,maximum=100,default=25", Doc: "entries"}
	cursor      = Parameter{Name: "cursor", In: "query", Type: int64(0), Schema: "minimum=0", Doc: "next of the page before"}
	traceparent = Parameter{Name: "traceparent", In: "header", Type: "", Doc: "W3C trace context, kept with the message"}

	location = Header{"Location", "", "the path of the message"}

	cancelled = []Answer{
		answer(200, "it is cancelled, now or before", views.Cancelled{}),
		answer(202, "its worker is told, and ends it", views.Cancelled{}),
	}
)

func idempotencyKey(doc string) Parameter {
	return Parameter{Name: request.IdempotencyKey, In: "header", Type: "", Schema: "maxLength=200", Doc: doc}
}

// searched lists the parameters of a list that can be searched.
func searched(state any, message, turn, when string) []Parameter {
	return []Parameter{
		ofAgent,
		{Name: "conversation", In: "query", Type: "", Doc: "only of this conversation; with agent"},
		{Name: "text", In: "query", Type: "", Schema: "maxLength=1000", Doc: "only with these words in the first 20,000 characters of " + message +
			`: all of them in any order, "a phrase", -without, this or that`},
		{Name: "state", In: "query", Type: state, Doc: "only in this state"},
		{Name: "error_class", In: "query", Type: "", Doc: "only where the " + turn + " ended by this error"},
		{Name: "since", In: "query", Type: "", Doc: "only " + when + " at this time or after it: RFC 3339, or a date; without an offset it is UTC"},
		{Name: "until", In: "query", Type: "", Doc: "only " + when + " before this time"},
		limit, cursor,
	}
}

// Routes lists the routes of the API. The page has others.
func (a *API) Routes() []Route {
	strict := slices.Concat(a.messages.routes(), a.turns.routes(), a.lanes.routes(), a.schedules.routes(), a.webhooks.routes())
	for i := range strict {
		strict[i].strictQuery = true
	}
	return slices.Concat(strict, a.events.routes(), a.openai.routes(), a.service.routes())
}

func (m *messages) routes() []Route {
	const tag = "messages"
	return []Route{
		{
			Route: post("/v1/messages", forSend, m.post), ID: "postMessage", Tag: tag, Summary: "Put a message into an agent's inbox",
			Parameters: []Parameter{
				idempotencyKey("a key belongs to its agent: a repeat with the same key gives the first message, whose time and priority stay; " +
					"with another body or conversation it is refused (409)"),
				traceparent, wait,
			},
			Body: submission{}, BodyRequired: true,
			Answers: []Answer{
				answer(201, "accepted; with wait, it has its reply", answeredMessage{}, location),
				answer(200, "accepted before, with the same key", answeredMessage{}, location),
				answer(202, "accepted; the reply did not come in time", answeredMessage{}, location),
			},
		},
		{
			Route: get("/v1/messages", forRead, m.list), ID: "listMessages", Tag: tag, Summary: "Messages, newest first",
			Parameters: searched(turnkeeper.MessageState(""), "the message", "newest turn", "accepted"),
			Answers:    []Answer{answer(200, foundPage, list[views.Message]{})},
		},
		{
			Route: get("/v1/messages/{id}", forSend, m.get), ID: "getMessage", Tag: tag, Summary: "A message and its reply",
			Parameters: []Parameter{number, wait},
			Answers:    []Answer{answer(200, "the message", answeredMessage{})},
		},
		{
			Route: post("/v1/messages/{id}/cancel", forOperate, m.cancel), ID: "cancelMessage", Tag: tag, Summary: "Cancel a message",
			Note: "409: it is closed already.", Parameters: []Parameter{number}, Body: cancellation{}, Answers: cancelled,
		},
		{
			Route: post("/v1/messages/retry", forOperate, m.retryFailed), ID: "retryMessages", Tag: tag, Summary: "Try all messages that failed again",
			Note: "A repeat goes on after an error.", Body: failedMessages{}, BodyRequired: true,
			Answers: []Answer{answer(200, "they are in the inbox again, as new messages; those that were before are left out", views.BulkRetried{})},
		},
		{
			Route: get("/v1/transcript", forRead, m.transcript), ID: "getTranscript", Tag: tag, Summary: "A conversation, newest first: messages, replies, and calls by name",
			Parameters: []Parameter{
				{Name: "agent", In: "query", Type: "", Doc: "whose conversation", Required: true},
				{Name: "conversation", In: "query", Type: "", Schema: "minLength=1", Doc: "its name", Required: true},
				limit, cursor,
			},
			Answers: []Answer{answer(200, "a page", list[views.Exchange]{})},
		},
		{
			Route: get("/v1/outbox", forRead, m.replies), ID: "listReplies", Tag: tag, Summary: "Replies, in the order they were written",
			Parameters: []Parameter{
				ofAgent,
				{Name: "after", In: "query", Type: int64(0), Schema: "minimum=0", Doc: "only replies with ids above this one"},
				{Name: "sub_agents", In: "query", Type: false, Schema: "default=true", Doc: "false: without the replies that sub-agents wrote for other agents"},
				limit,
			},
			Answers: []Answer{answer(200, "a page; next is there as long as the page is not empty", list[views.Reply]{})},
		},
	}
}

func (t *turns) routes() []Route {
	const tag = "turns"
	return []Route{
		{
			Route: get("/v1/turns", forRead, t.list), ID: "listTurns", Tag: tag, Summary: "Turns, newest first",
			Parameters: searched(turnkeeper.TurnState(""), "its message", "turn", "created"),
			Answers:    []Answer{answer(200, foundPage, list[views.Turn]{})},
		},
		{
			Route: get("/v1/turns/{id}", forRead, t.get), ID: "getTurn", Tag: tag, Summary: "All about one turn",
			Parameters: []Parameter{number},
			Answers:    []Answer{answer(200, "the turn", views.WholeTurn{})},
		},
		{
			Route: post("/v1/turns/{id}/cancel", forOperate, t.cancel), ID: "cancelTurn", Tag: tag, Summary: "Cancel a turn",
			Note: "409: not possible as things stand.", Parameters: []Parameter{number}, Body: cancellation{}, Answers: cancelled,
		},
		{
			Route: post("/v1/turns/{id}/retry", forOperate, t.retry), ID: "retryTurn", Tag: tag, Summary: "Try a turn's message again",
			Note: "409: not possible as things stand.", Parameters: []Parameter{number}, Body: retryBody{},
			Answers: []Answer{
				answer(201, "it is in the inbox again, as a new message", views.Retried{}, location),
				answer(200, "it is due now, or was put into the inbox again before", views.Retried{}, location),
			},
		},
		{
			Route: get("/v1/outputs/{id}", forRead, t.output), ID: "getOutput", Tag: tag, Summary: "The full text, or the bytes, of a tool's result",
			Parameters: []Parameter{
				{Name: "id", In: "path", Type: ""},
				{Name: "from", In: "query", Type: int64(0), Schema: "minimum=0", Doc: "first character; of binary content, byte"},
				{Name: "to", In: "query", Type: int64(0), Schema: "minimum=0", Doc: "the one after the last"},
			},
			Answers: []Answer{{
				Status: 200, Doc: "the content", Other: []Media{{Type: "text/plain"}, {Type: "application/octet-stream", Binary: true}},
				Headers: []Header{{"Content-Disposition", "", "attachment, where the content is binary"}},
			}},
		},
	}
}

func (s *events) routes() []Route {
	return []Route{{
		Route: get("/v1/turns/{id}/events", forRead, s.get), eventSource: true,
		ID: "getEvents", Tag: "turns", Summary: "The events of a turn: those stored, or, with Accept: text/event-stream, those and all that come",
		Parameters: []Parameter{
			number,
			{Name: "after", In: "query", Type: int64(0), Schema: "minimum=0,default=0", Doc: "only events with numbers above this one"},
			{Name: "Last-Event-ID", In: "header", Type: "", Doc: "the same, and wins"},
			{Name: "limit", In: "query", Type: 0, Schema: "minimum=1,maximum=1000,default=500", Doc: "events; not for streams"},
		},
		Answers: []Answer{
			{
				Status: 200, Type: list[views.Event]{}, Other: []Media{{Type: "text/event-stream"}},
				Doc: "a page of events, or a stream: id is the event's number, event its type, data an Event. The stream ends after the turn's last event. " +
					"Where it ends before, the client comes again with Last-Event-ID.",
			},
			{Status: 204, Doc: "streams: the client has the turn's last event, nothing follows"},
		},
	}}
}

func (o *lanes) routes() []Route {
	const tag = "operate"
	return []Route{
		{
			Route: get("/v1/lanes", forRead, o.list), ID: "listLanes", Tag: tag, Summary: "Lanes, held ones first",
			Parameters: []Parameter{ofAgent, limit, cursor},
			Answers:    []Answer{answer(200, "lanes", list[views.Lane]{})},
		},
		{
			Route: get("/v1/workers", forRead, o.workers), ID: "listWorkers", Tag: tag, Summary: "Worker processes, without those that ended an hour ago",
			Note: allAgents, Answers: []Answer{answer(200, "workers", list[views.Worker]{})},
		},
		{
			Route: get("/v1/agents", forRead, o.agents), ID: "listAgents", Tag: tag, Summary: "Registered agents",
			Answers: []Answer{answer(200, "all", list[views.Agent]{})},
		},
		{
			Route: get("/v1/model-health", forRead, o.models), ID: "listModelHealth", Tag: tag, Summary: "The models that agents ask, and which are down",
			Answers: []Answer{answer(200, "models", list[views.Model]{})},
		},
	}
}

func (s *schedules) routes() []Route {
	const tag = "operate"
	return []Route{
		{
			Route: get("/v1/schedules", forRead, s.list), ID: "listSchedules", Tag: tag, Summary: "Schedules",
			Answers: []Answer{answer(200, "all", list[views.Schedule]{})},
		},
		{
			Route: post("/v1/schedules/{agent}/{name}/run", forOperate, s.run), ID: "runSchedule", Tag: tag, Summary: "Run a schedule now, beside its slots",
			Note: "Also where the schedule is paused.", Parameters: []Parameter{{Name: "agent", In: "path", Type: ""}, {Name: "name", In: "path", Type: ""}},
			Answers: []Answer{
				answer(201, "its message is in the inbox", views.ScheduleRun{}, location),
				answer(200, "a message of the schedule waits already, and is the run", views.ScheduleRun{}, location),
			},
		},
		{
			Route: get("/v1/scheduler", forRead, s.scheduler), ID: "getScheduler", Tag: tag, Summary: "The state of the scheduler",
			Answers: []Answer{answer(200, "the scheduler", views.Scheduler{})},
		},
		{
			Route: post("/v1/scheduler/pause", forOperate, s.pauseScheduler), ID: "pauseScheduler", Tag: tag, Summary: "Hand out no more turns; what runs goes on",
			Note: allAgents, Body: pause{}, BodyRequired: true,
			Answers: []Answer{answer(200, "the scheduler", views.Scheduler{})},
		},
		{
			Route: post("/v1/scheduler/resume", forOperate, s.resumeScheduler), ID: "resumeScheduler", Tag: tag, Summary: "Hand out turns again",
			Note: allAgents, Answers: []Answer{answer(200, "the scheduler", views.Scheduler{})},
		},
	}
}

func (h webhooks) routes() []Route {
	const tag = "webhooks"
	return []Route{
		{
			Route: get("/v1/webhooks", forRead, h.list), ID: "listWebhooks", Tag: tag, Summary: "Endpoints that replies are pushed to",
			Note: allAgents, Answers: []Answer{answer(200, "all", list[views.Webhook]{})},
		},
		{
			Route: get("/v1/webhooks/{name}/deliveries", forRead, h.deliveries), ID: "listDeliveries", Tag: tag, Summary: "Deliveries to a webhook, of the newest reply first",
			Parameters: []Parameter{
				{Name: "name", In: "path", Type: "", Doc: "of the webhook"},
				ofAgent,
				{Name: "state", In: "query", Type: turnkeeper.DeliveryState(""), Doc: "only in this state"},
				limit, cursor,
			},
			Answers: []Answer{answer(200, "a page", list[views.Delivery]{})},
		},
	}
}

func (o *openai) routes() []Route {
	const tag = "openai"
	id := Parameter{Name: "id", In: "path", Type: "", Schema: "pattern=^resp_[1-9][0-9]*$"}
	stream := []Media{{Type: "text/event-stream", Doc: "with stream: the events of the Responses API, numbered by sequence_number from 0"}}
	return []Route{
		{
			Route: post("/v1/responses", forSend, o.post), ID: "createResponse", Tag: tag, Summary: "Send a message by OpenAI's Responses API",
			Note:       "Parameters that only tune the model are read over; those that would change the answer and cannot be had are refused.",
			Parameters: []Parameter{idempotencyKey("a repeat with the same key is the same response; another request with it is refused (409)"), traceparent},
			Body:       responses.Request{}, BodyRequired: true,
			Answers: []Answer{{
				Status: 200, Type: responses.Response{}, Other: stream,
				Doc: "the response: at once with background, else when it is done, or as it stands after 5 minutes",
			}},
		},
		{
			Route: get("/v1/responses/{id}", forSend, o.get), ID: "getResponse", Tag: tag, Summary: "A response as it stands, or its events",
			Parameters: []Parameter{
				id,
				{Name: "stream", In: "query", Type: false, Doc: "its events, from the first or after starting_after"},
				{Name: "starting_after", In: "query", Type: int64(0), Schema: "minimum=0", Doc: "sequence_number of the last event that the client has; with stream"},
			},
			Answers: []Answer{{Status: 200, Doc: "the response", Type: responses.Response{}, Other: stream}},
		},
		{
			Route: get("/v1/responses/{id}/input_items", forSend, o.with((*responses.API).Input)), ID: "listResponseInput", Tag: tag, Summary: "What was sent",
			Parameters: []Parameter{id}, Answers: []Answer{answer(200, "one message", responses.InputList{})},
		},
		{
			Route: post("/v1/responses/{id}/cancel", forSend, o.with((*responses.API).Cancel)), ID: "cancelResponse", Tag: tag, Summary: "Cancel a response",
			Note: "For a response that another token made, operate is needed too.", Parameters: []Parameter{id},
			Answers: []Answer{answer(200, "the response: cancelled, or done already, or still in progress where its worker has not ended it within 10 s", responses.Response{})},
		},
		{
			Route: get("/v1/models", forSend, o.with((*responses.API).Models)), ID: "listModels", Tag: tag, Summary: "The agents, as models",
			Answers: []Answer{answer(200, "all that the token is for", responses.ModelList{})},
		},
		{
			Route: get("/v1/models/{id}", forSend, o.with((*responses.API).Model)), ID: "getModel", Tag: tag, Summary: "An agent, as a model",
			Parameters: []Parameter{{Name: "id", In: "path", Type: ""}}, Answers: []Answer{answer(200, "the agent", responses.Model{})},
		},
	}
}

func (s *service) routes() []Route {
	const tag = "service"
	return []Route{
		{
			Route: get("/metrics", forRead, s.prometheus), ID: "getMetrics", Tag: tag, Summary: "The process's metrics, as Prometheus reads them",
			Note: allAgents, Answers: []Answer{{Status: 200, Doc: "metrics", Other: []Media{{Type: "text/plain"}}}},
		},
		{
			Route: get("/openapi.json", forAll, s.description), ID: "getDescription", Tag: tag, Summary: "This document",
			Answers: []Answer{answer(200, "OpenAPI", map[string]any{})},
		},
		{
			Route: get("/healthz", forAll, s.alive), probe: true, ID: "getHealth", Tag: tag, Summary: "Whether the process answers",
			Answers: []Answer{answer(200, "it does", health{})},
		},
		{
			Route: get("/readyz", forAll, s.ready), probe: true, ID: "getReadiness", Tag: tag,
			Summary: "Whether to send requests here: not while the process stops or the database is away",
			Answers: []Answer{answer(200, "ready", health{})},
		},
	}
}
