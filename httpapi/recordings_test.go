package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper/httpapi"
	"turnkeeper/internal/golden"
)

// The tests of this file record how each route reads and changes the store, and all that it answers: over rows of every
// kind, for each kind of token. A change of a file of testdata is a change that a client, a person or the database
// notices.

// TestWhatTheAPIAnswers records each route of the API that reads.
func TestWhatTheAPIAnswers(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, route := range httpapi.New(httpapi.Config{Store: &standIn{}}).Routes() {
		if route.Method == http.MethodGet && !strings.HasSuffix(route.Path, "/events") &&
			route.Path != "/openapi.json" {
			paths = append(paths, route.Path)
		}
	}
	all := readings(paths)
	for i := range all {
		if strings.HasPrefix(all[i].path, "/v1/transcript") {
			all[i].path += "?agent=clerk&conversation=main"
		}
	}
	first := all
	for _, as := range []string{"clerk", "anna", "send"} {
		for _, a := range first {
			if strings.ContainsAny(a.path, "23456789gn") && strings.Contains(a.path, "turns/") ||
				strings.HasSuffix(a.path, "x") {
				continue
			}
			a.as = as
			all = append(all, a)
		}
	}
	recorded(t, "api.txt", all)
}

// TestListsAreAsked records what lists ask the store for, and where their next page begins.
func TestListsAreAsked(t *testing.T) {
	t.Parallel()
	var all []asked
	for _, path := range []string{
		"/v1/messages?limit=7&agent=clerk&user=anna&conversation=main&text=+two+words+&state=failed&error_class=overloaded&since=2026-01-02&until=2026-01-02T03:04:05%2B02:00&cursor=9",
		"/v1/messages?since=2026-01-02T03:04&until=2026-01-02T03:04:05", "/v1/messages?since=yesterday",
		"/v1/messages?until=0000-01-01", "/v1/messages?conversation=main",
		"/v1/messages?agent=clerk&conversation=main&user=", "/v1/messages?user=", "/v1/messages?user=a%0ab",
		"/v1/turns?limit=7&agent=clerk&user=anna&state=running&cursor=9", "/v1/turns?since=2026-01-02&until=2026-01-03",
		"/v1/transcript?agent=clerk&user=anna&conversation=main&limit=7&cursor=9", "/v1/transcript?agent=clerk",
		"/v1/outbox?limit=7&agent=clerk&user=anna&after=9&sub_agents=false", "/v1/outbox?sub_agents=true",
		"/v1/outbox?sub_agents=1",
		"/v1/lanes?limit=7&agent=clerk&cursor=9", "/v1/asks?limit=7&agent=clerk&user=anna&state=open&turn=8&cursor=9",
		"/v1/webhooks/hook/deliveries?limit=7&agent=clerk&user=anna&state=dead&cursor=9",
		"/v1/webhooks/none/deliveries",
		"/v1/outputs/text?from=3&to=5", "/v1/outputs/text?to=99", "/v1/outputs/text?from=5&to=3",
		"/v1/outputs/bytes?from=3&to=5", "/v1/outputs/bytes?from=5&to=3",
		"/v1/outputs/bytes?from=99", "/v1/messages/3?wait=4500ms", "/v1/messages/1?wait=4500ms",
		"/v1/messages/100?wait=4500ms",
	} {
		all = append(all, asked{method: "GET", path: path})
	}
	for _, as := range []string{"clerk", "both", "desk", "anna"} {
		for _, path := range []string{
			"/v1/turns", "/v1/turns?agent=desk", "/v1/messages?agent=clerk&user=anna", "/v1/asks?user=bert",
			"/v1/asks?agent=clerk", "/v1/outbox", "/v1/workers",
			"/v1/webhooks/hook/deliveries", "/metrics", "/v1/turns/1", "/v1/messages/1", "/v1/asks/1",
			"/v1/outputs/text", "/v1/levels", "/v1/model-health", "/v1/doctor",
		} {
			all = append(all, asked{as: as, method: "GET", path: path})
		}
	}
	recorded(t, "lists.txt", all)
}

// TestWhatTheAPIChanges records each route of the API that changes something, at the limits of its bodies.
func TestWhatTheAPIChanges(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	var all []asked
	post := func(as, path, body string, headers ...string) {
		all = append(all, asked{as: as, method: "POST", path: path, body: body, headers: headers})
	}
	post("", "/v1/messages",
		`{"agent":"clerk","body":"work","user":"anna","conversation":"main","priority":7,"due_at":"2000-01-01T01:02:03+01:00"}`,
		"Idempotency-Key", "key", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	for _, body := range []string{
		`{"agent":"clerk","body":"work"}`, `{"agent":"clerk","body":"` + long(1000) + `"}`,
		`{"agent":"clerk","body":"` + long(1001) + `"}`, `{"agent":"ghost","body":"x"}`,
		`{"agent":"clerk","body":"x","due_at":"tomorrow"}`, `{"agent":"clerk","body":"x","due_at":""}`,
		`{"agent":"clerk","body":"\u0000"}`, `{"agent":"clerk","body":"\ud83d"}`,
		`{"agent":"clerk","Agent":"desk","body":"x"}`, `{"agent":"clerk","body":7}`, `{"agent":"clerk","body":"x"} {}`,
		`{"agent":"clerk","what":"x"}`, `[]`, `{`,
		`{"agent":"clerk","body":"` + long(30000) + `"}`,
	} {
		post("", "/v1/messages", body)
	}
	post("", "/v1/messages?wait=4500ms", `{"agent":"clerk","body":"answered"}`)
	post("", "/v1/messages?wait=4500ms", `{"agent":"clerk","body":"answered"}`, "Idempotency-Key", "key")
	post("", "/v1/messages?wait=2500ms", `{"agent":"clerk","body":"work"}`)
	post("", "/v1/messages", `{"agent":"clerk","body":"x"}`, "Content-Type", "text/plain")
	post("", "/v1/messages", `{"agent":"clerk","body":"x"}`, "Idempotency-Key", " ")
	for _, as := range []string{"clerk", "desk", "anna", "send", "read"} {
		post(as, "/v1/messages", `{"agent":"clerk","body":"work"}`)
		post(as, "/v1/messages", `{"agent":"ghost","body":"work","user":"bert"}`)
		post(as, "/v1/turns/2/cancel", `{"reason":"mine"}`)
	}
	for _, verb := range []string{"/v1/turns/2/cancel", "/v1/turns/2/finish", "/v1/messages/2/cancel",
		"/v1/messages/2/finish"} {
		for _, body := range []string{"", `{"reason":"enough"}`, `{"reason":"` + long(1000) + `"}`,
			`{"reason":"` + long(1001) + `"}`} {
			post("", verb, body)
		}
		post("desk", verb, "")
		post("", strings.Replace(verb, "2", "100", 1), "")
		post("", strings.Replace(verb, "2", "x", 1), "")
	}
	for _, body := range []string{"", `{}`, `{"anyway":true}`, `{"anyway":1}`} {
		post("", "/v1/turns/6/retry", body)
	}
	post("desk", "/v1/turns/6/retry", "")
	for _, body := range []string{
		`{"state":"failed"}`, `{"state":"failed","since":"90m","agent":"clerk","error_class":"overloaded"}`,
		`{"state":"failed","since":"-1s"}`, `{"state":"running"}`,
		`{"state":"failed","error_class":"odd"}`, `{"state":"failed","agent":"desk"}`,
	} {
		post("", "/v1/messages/retry", body)
		post("clerk", "/v1/messages/retry", body)
	}
	for _, as := range []string{"", "clerk", "both"} {
		post(as, "/v1/scheduler/pause", `{"reason":" night "}`)
		post(as, "/v1/scheduler/resume", "")
		post(as, "/v1/schedules/clerk/daily/run", "")
		post(as, "/v1/schedules/desk/daily/run", "")
		post(as, "/v1/levels/pin", `{"level":"low","for_seconds":60,"reason":" why ","by":" me "}`)
		post(as, "/v1/levels/pin", `{"agent":"clerk","level":"critical"}`)
		post(as, "/v1/levels/unpin", `{"agent":"clerk"}`)
		post(as, "/v1/levels/unpin", `{}`)
	}
	for _, body := range []string{
		`{"agent":"ghost","level":"low"}`, `{"level":"odd"}`, `{"level":"low","for_seconds":31622400}`,
		`{"level":"low","for_seconds":31622401}`, `{"level":"low","for_seconds":-1}`,
		`{"level":"low","reason":"` + long(1000) + `","by":"` + long(1000) + `"}`, `{"level":"low","reason":"` +
			long(1001) + `"}`, `{"level":"low","by":"` + long(1001) + `"}`,
	} {
		post("", "/v1/levels/pin", body)
	}
	recorded(t, "changes.txt", append(all, answers()...))
}

// answers are answers to asks.
func answers() (all []asked) {
	post := func(as, path, body string) {
		all = append(all, asked{as: as, method: "POST", path: path, body: body})
	}
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "100"} {
		for _, body := range []string{
			`{"decision":"approved","hash":"hash","answered_by":"ann","comment":"go","arguments":{"amount": 90}}`,
			`{"decision":"answered","hash":"hash","answered_by":"ann","answer":"blue"}`,
			`{"decision":"denied","hash":"hash","answered_by":"bob"}`,
		} {
			post("", "/v1/asks/"+id+"/answer", body)
		}
	}
	for _, body := range []string{
		`{"decision":"approved","answered_by":"ann"}`, `{"decision":"approved","hash":"other","answered_by":"ann"}`,
		`{"decision":"approved","hash":"hash"}`,
		`{"decision":"approved","hash":"hash","answered_by":"eve"}`,
		`{"decision":"approved","hash":"hash","answered_by":"ann","arguments":{"amount":900,"to":"асme"}}`,
		`{"decision":"approved","hash":"hash","answered_by":"ann","arguments":7}`,
		`{"decision":"approved","hash":"hash","answered_by":"ann","arguments":null}`,
		`{"decision":"maybe","hash":"hash","answered_by":"ann"}`,
	} {
		post("", "/v1/asks/1/answer", body)
	}
	post("", "/v1/asks/2/answer", `{"decision":"answered","hash":"hash","answered_by":"ann","answer":"green"}`)
	post("ann", "/v1/asks/1/answer", `{"decision":"approved","hash":"hash"}`)
	post("ann", "/v1/asks/1/answer", `{"decision":"approved","hash":"hash","answered_by":"bob"}`)
	post("answer", "/v1/asks/1/answer", `{"decision":"approved","hash":"hash"}`)
	post("send", "/v1/asks/1/answer", `{"decision":"approved","hash":"hash"}`)
	return all
}

// TestWhatThePageShows records each page, as it is shown to who may do all, and to who may read some.
func TestWhatThePageShows(t *testing.T) {
	t.Parallel()
	paths := []string{
		"/", "/turns", "/inbox", "/replies", "/agents", "/agents/{name}", "/webhooks", "/webhooks/hook", "/lanes",
		"/schedules", "/asks", "/doctor",
		"/conversation?agent=clerk&conversation=main", "/sign-in",
	}
	all := append([]asked{}, readings(paths)...)
	for _, as := range []string{"read", "clerk"} {
		for _, path := range []string{"/",
			"/turns?limit=7&state=failed&user=anna&conversation=main&agent=clerk&text=word&error_class=auth&since=2026-01-02&until=2026-01-03&done=x",
			"/conversation?agent=clerk&conversation=none", "/replies?cursor=9", "/lanes?cursor=9",
			"/inbox?user=anna&state=", "/inbox?limit=7&cursor=9", "/replies?limit=7&cursor=9",
			"/agents?limit=3&cursor=2", "/agents/clerk", "/agents/desk", "/webhooks",
			"/webhooks/hook?limit=7&state=dead", "/lanes?limit=7&cursor=7", "/schedules?limit=3&cursor=3",
			"/asks?limit=7&state=open&user=anna", "/doctor",
			"/conversation?agent=clerk&conversation=main&limit=7&cursor=9", "/conversation?agent=clerk",
			"/sign-in?next=/turns",
			"/asks/1", "/turns/5", "/inbox/1"} {
			all = append(all, asked{as: as, method: "GET", path: path})
		}
	}
	recorded(t, "pages.txt", all)
	recorded(t, "page_turns.txt", readings([]string{"/turns/{id}"}))
	recorded(t, "page_rows.txt", readings([]string{"/inbox/{id}", "/asks/{id}", "/outputs/{id}",
		"/outputs/{id}?from=3&to=6", "/outputs/text?from=10", "/outputs/text?from=-1"}))
}

// TestTheFrameOfPages records whole pages: the head, the navigation and the notices of actions.
func TestTheFrameOfPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecording(t)
		for _, a := range []asked{
			{path: "/"}, {path: "/turns?done=cancelled", as: "read"}, {path: "/asks/1?done=approved", as: "clerk"},
			{path: "/sign-in"},
			{path: "/agents/clerk?done=pinned", as: "send"}, {path: "/turns/100"},
		} {
			a.method = "GET"
			w := r.do(t.Context(), a)
			head, rest, _ := strings.Cut(w.Body.String(), "<main")
			_, foot, _ := strings.Cut(rest, "</main>")
			_, notice, _ := strings.Cut(rest, "\n")
			notice, _, _ = strings.Cut(notice, "\n")
			r.text.WriteString("=== " + a.path + "\n" + head + "\n" + notice + "\n" + foot + "\n")
		}
		golden.File(t, "testdata/frame.txt", r.text.String())
	})
}

// TestFormsOfThePage records what each form does, and where it leads.
func TestFormsOfThePage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1001)
	var all []asked
	post := func(path string, pairs ...string) {
		for _, as := range []string{"", "all", "clerk", "desk", "read"} {
			all = append(all, asked{as: as, method: "POST", path: path, body: form(pairs...),
				headers: []string{"Referer", "http://localhost/turns?a=b"}})
		}
	}
	for _, path := range []string{"/turns/2/cancel", "/turns/2/finish", "/inbox/2/cancel", "/scheduler/pause",
		"/schedules/clerk/daily/pause"} {
		post(path, "reason", " why ")
		post(path, "reason", long)
	}
	post("/turns/6/retry")
	post("/turns/6/retry", "anyway", "yes")
	post("/turns/x/retry")
	post("/turns/100/finish")
	post("/scheduler/resume")
	post("/schedules/clerk/daily/resume")
	post("/schedules/clerk/daily/run")
	post("/inbox/retry-failed")
	post("/inbox", "agent", "clerk", "user", "anna", "conversation", " main ", "body", "one\r\ntwo", "number", "7")
	post("/inbox", "agent", "clerk", "body", long)
	post("/inbox", "agent", "ghost", "body", "x")
	post("/inbox", "agent", "clerk", "body", "\x00")
	post("/agents/clerk/level/pin", "level", "low", "for", "4h", "by", "me", "reason", " why ")
	post("/agents/clerk/level/pin", "level", "low", "for", "")
	post("/agents/clerk/level/pin", "level", "low", "for", "0h")
	post("/agents/clerk/level/pin", "level", "odd")
	post("/agents/clerk/level/unpin")
	for _, headers := range [][]string{{"Origin", "", "Sec-Fetch-Site", ""}, {"Content-Type", "multipart/form-data"},
		{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}} {
		all = append(all, asked{method: "POST", path: "/turns/2/cancel", headers: headers})
	}
	all = append(all,
		asked{method: "POST", path: "/turns/2/cancel", body: "reason=" + strings.Repeat("x", 20000)},
		asked{method: "POST", path: "/turns/2/cancel", body: "reason=%zz"},
		asked{method: "POST", path: "/sign-in", body: form("token", " all ", "next", "/turns")},
		asked{method: "POST", path: "/sign-in", body: form("token", "none", "next", "//evil")},
		asked{method: "POST", path: "/sign-in", body: form("token", "send")}, asked{method: "POST", path: "/sign-out",
			as: "all"}, asked{method: "POST", path: "/sign-out"},
	)
	for _, as := range []string{"", "ann", "read"} {
		answer := func(id string, pairs ...string) {
			all = append(all, asked{as: as, method: "POST", path: "/asks/" + id + "/answer",
				body: form(append(pairs, "hash", "hash")...)})
		}
		answer("1", "decision", "approved", "answered_by", " ann ", "comment", " go ", "arguments",
			"{\r\n\"amount\": 90}")
		answer("1", "decision", "approved", "answered_by", "ann", "arguments", " ")
		answer("1", "decision", "approved", "answered_by", "ann")
		answer("2", "decision", "answered", "answered_by", "ann", "answer", `"blue"`)
		answer("2", "decision", "answered", "answered_by", "ann", "answer", "green")
		answer("5", "decision", "denied", "answered_by", "ann")
		answer("100", "decision", "denied")
	}
	recorded(t, "forms.txt", all)
}

// TestProblemsOfRequests records requests that no route takes.
func TestProblemsOfRequests(t *testing.T) {
	t.Parallel()
	var all []asked
	for _, a := range []asked{
		{path: "/v1/nothing"}, {path: "/nothing"}, {path: "/v1/chat/completions"}, {path: "/v1/responses"},
		{path: "/v1/turns", method: "DELETE"}, {path: "/v1/models", method: "POST"},
		{path: "/v1/turns?limit=0"}, {path: "/v1/turns?a=b"}, {path: "/v1/turns?limit=1&limit=2"},
		{path: "/v1/turns?agent="}, {path: "/v1/turns?a;b"}, {path: "/v1/turns?text=%ff"},
		{path: "/v1/%ff"}, {path: "/v1/%00"}, {path: "/v1/turns?access_token=x"}, {path: "/v1/turns?token=x"},
		{path: "/v1/turns", as: "ghost"}, {path: "/turns", as: "ghost"},
		{path: "/v1/turns", headers: []string{"Authorization", "Basic x"}},
		{path: "/v1/turns", headers: []string{"Authorization", "Bearer "}},
		{path: "/v1/turns", headers: []string{"X-Forwarded-For", "1.2.3.4"}},
		{path: "/turns", headers: []string{"X-Envoy-Peer", "x"}},
		{path: "/v1/turns", headers: []string{"Cookie", "turnkeeper_session=ts_read"}}, {path: "/v1/messages",
			method: "POST", headers: []string{"Cookie", "turnkeeper_session=ts_all"}},
		{path: "/v1/turns", headers: []string{"X-Forwarded-For", "1.2.3.4", "Cookie", "turnkeeper_session=ts_ghost"}},
		{path: "/v1/turns", headers: []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"},
			method: "POST"},
		{path: "/v1/scheduler", as: "anna"}, {path: "/v1/scheduler", as: "send"}, {path: "/healthz"}, {path: "/readyz"},
		{path: "/assets/page.css", method: "HEAD"}, {path: "/v1/turns", method: "HEAD"},
	} {
		if a.method == "" {
			a.method = "GET"
		}
		all = append(all, a)
	}
	recorded(t, "problems.txt", all, func(c *httpapi.Config) { c.Streams = 1; c.QueryTimeout = 20 * time.Second })
}

// TestResponsesAreCreated records what becomes of each parameter of the Responses API, and of each kind of history.
func TestResponsesAreCreated(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	var all []asked
	post := func(as, body string, headers ...string) {
		all = append(all, asked{as: as, method: "POST", path: "/v1/responses", body: body, headers: headers})
	}
	with := func(parameters string) string {
		return `{"model":"clerk","background":true,"input":"work",` + parameters + `}`
	}
	for _, p := range []string{
		`"instructions":"be brief"`, `"instructions":null`, `"instructions":7`, `"max_output_tokens":1`,
		`"max_output_tokens":1000000`, `"max_output_tokens":0`, `"max_output_tokens":1000001`,
		`"max_output_tokens":1.5`, `"store":true`, `"store":false`, `"store":"yes"`,
		`"text":{"format":{"type":"text"}}`, `"text":{"format":{"type":"json_schema"}}`, `"text":7`, `"tools":[]`,
		`"tools":[{"type":"web_search"}]`, `"tool_choice":"auto"`, `"tool_choice":"none"`, `"max_tool_calls":7`,
		`"temperature":0.5`, `"what":1`, `"user":"anna"`, `"user":"a\nb"`, `"user":7`,
		`"conversation":"old"`, `"conversation":"new"`, `"conversation":"none"`, `"conversation":{"id":"old"}`,
		`"conversation":{}`, `"conversation":7`, `"previous_response_id":"resp_3"`,
		`"previous_response_id":"resp_100"`, `"previous_response_id":"3"`,
		`"previous_response_id":"resp_3","conversation":"old"`, `"metadata":{"a":"b"}`, `"metadata":{"a":null}`,
		`"metadata":{"a":7}`,
		`"metadata":{"` + long(64) + `":"` + long(512) + `"}`, `"metadata":{"` + long(65) + `":""}`,
		`"metadata":{"a":"` + long(513) + `"}`, `"stream":"yes"`, `"background":7`, `"include":[]`,
		`"truncation":"auto"`, `"top_p":0.5`, `"service_tier":"flex"`, `"prompt":{"id":"x"}`,
		`"reasoning":{"effort":"low"}`, `"parallel_tool_calls":false`, `"top_logprobs":3`,
	} {
		post("", with(p))
	}
	for n := range 2 {
		pairs := ""
		for i := range 16 + n {
			pairs += `,"k` + string(rune('a'+i)) + `":"v"`
		}
		post("", with(`"metadata":{`+pairs[1:]+`}`))
	}
	input := func(items string) string { return `{"model":"clerk","background":true,"input":[` + items + `]}` }
	const user, agent = `{"role":"user","content":"one"}`,
		`{"role":"assistant","content":[{"type":"output_text","text":"second"}]}`
	for _, items := range []string{
		``, user, user + `,` + user, agent, user + `,` + agent, user + `,` + agent + `,` + user, user + `,` + agent +
			`,` + agent + `,` + user, user + `,` + agent + `,` + user + `,` + user,
		`{"role":"system","content":"be kind"},{"role":"developer","content":[{"type":"input_text","text":"be brief"}]},` + user, `{"role":"tool","content":"x"}`, `{"type":"function_call"}`,
		`{"type":"reasoning"},` + user, `{"role":"user","content":7}`,
		`{"role":"user","content":[{"type":"input_image"}]}`,
		`{"role":"user","content":[{"type":"output_text","text":"x"}]}`,
		`{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}`,
		`{"role":"assistant","phase":"commentary","content":"hm"},` + user,
		`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},` + user,
		`{"role":"user","content":"  "}`, `7`,
		`{"type":"item_reference","id":"msg_in_3"},{"type":"item_reference","id":"msg_3"},` + user,
		`{"id":"msg_3"},{"id":"msg_3_11_2"},` + user, `{"id":"msg_3"},` + agent + `,` + user,
		agent + `,{"id":"msg_3"},` + user, `{"id":"msg_3"},` + user + `,{"id":"msg_3"},` + user, `{"id":"msg_in_3"},` +
			user + `,{"id":"msg_in_3"},` + user, `{"id":"msg_100"},` + user,
		`{"id":"item_3"},` + user, `{"id":"msg_0"},` + user, `{"id":"msg_x"},` + user,
		strings.Repeat(`{"id":"msg_in_9"},`, 201) + user,
	} {
		post("", input(items))
		post("", strings.Replace(input(items), `"background"`, `"conversation":"old","background"`, 1))
		post("", strings.Replace(input(items), `"background"`, `"conversation":"new","background"`, 1))
	}
	for _, body := range []string{
		`{"input":"x"}`, `{"model":"clerk"}`, `{"model":"clerk","input":"x","background":7}`,
		`{"model":"clerk","input":""}`, `{"model":"No Name","input":"x"}`,
		`{"model":"turnkeeper/clerk","input":"x","background":true}`, `{"model":7,"input":"x"}`,
		`[]`, `null`, `{`, `{"model":"clerk","model":"desk","input":"x"}`,
		`{"model":"clerk","background":true,"input":"` + long(1000) + `"}`,
		`{"model":"clerk","background":true,"input":"` + long(1001) + `"}`,
		`{"model":"clerk","background":true,"instructions":"y","input":"` + long(1000) + `"}`,
		`{"model":"clerk","input":7}`,
	} {
		post("", body)
	}
	const plain = `{"model":"clerk","input":"x","background":true}`
	for _, as := range []string{"all", "desk", "anna", "send", "read"} {
		post(as, plain)
		post(as, with(`"user":"bert"`))
		post(as, with(`"previous_response_id":"resp_3"`))
		all = append(all, asked{as: as, method: "POST", path: "/v1/conversations"}, asked{as: as, method: "GET",
			path: "/v1/conversations/conv_1"})
	}
	post("", plain, "Idempotency-Key", "key", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Turnkeeper-Drafts", "true")
	post("", plain, "Idempotency-Key", " ")
	post("", plain, "Turnkeeper-Drafts", "maybe")
	for _, body := range []string{
		`{"metadata":{"a":"b"}}`, `{"items":[` + user + `,` + agent + `]}`, `{"items":null,"metadata":null}`,
		`{"items":[` + strings.Repeat(user+`,`, 19) + user + `]}`,
		`{"items":[` + strings.Repeat(user+`,`, 20) + user + `]}`, `{"items":[{"id":"msg_3"}]}`, `{"items":7}`,
		`{"what":1}`, `[]`, `null`, `{"metadata":7}`,
		`{"items":[{"role":"user","content":"` + long(930) + `"}]}`,
		`{"items":[{"role":"user","content":[{"type":"input_text","text":"` + long(1000) + `"}]}]}`,
	} {
		all = append(all, asked{method: "POST", path: "/v1/conversations", body: body})
	}
	recorded(t, "responses.txt", all, func(c *httpapi.Config) { c.ResponseWait = 2500 * time.Millisecond })
}
