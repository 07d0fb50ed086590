package httpapi_test

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"turnkeeper/httpapi"
	"turnkeeper/httpapi/page"
	"turnkeeper/storage/storagetest"
)

// A visible says what a route shows or does, to whom.
type visible struct {
	scopes []string // of the page's routes; those of the API are in the table allowed
	of     string   // the kind of object whose id is in the path or, as ID, in the body; empty: none
	list   *listing // nil: it is not a list
	bound  bool     // a token that is bound to a user may use it
	whole  bool     // it serves all agents: a token for some is refused
	public bool     // it shows the same to everybody
	body   string   // of a POST
	form   bool     // the body is a form of the page
	stream string   // it is a stream, to be read up to this text or its end
	want   []int    // the statuses of what a bearer may see or do; nil: 200
	part   string   // the part of TestWhatEachTokenMaySeeAndDo that checks more of it
}

const reason = `{"reason":"ID"}`

// visibleRoutes says it of each route.
var visibleRoutes = map[string]visible{
	"GET /v1/messages":             {list: listedMessages, bound: true},
	"GET /v1/messages/{id}":        {of: "message", bound: true},
	"GET /v1/messages/{id}/events": {of: "watched message", bound: true, stream: "message_waiting"},
	"GET /v1/turns":                {list: listedTurns, bound: true},
	"GET /v1/turns/{id}":           {of: "turn", bound: true},
	"GET /v1/turns/{id}/events":    {of: "turn", bound: true},
	"GET /v1/outputs/{id}":         {of: "output", bound: true},
	"GET /v1/asks":                 {list: listedAsks, bound: true},
	"GET /v1/asks/{id}":            {of: "ask", bound: true},
	"GET /v1/outbox":               {list: listedReplies, bound: true},
	"GET /v1/transcript":           {bound: true, want: []int{400}, part: "transcripts"},
	"GET /v1/agents":               {list: listedAgents, bound: true},
	"GET /v1/agents/{name}":        {of: "agent"},
	"GET /v1/lanes":                {list: listedLanes},
	"GET /v1/schedules":            {list: listedSchedules},
	"GET /v1/levels":               {list: listedLevels},
	"GET /v1/model-health":         {list: listedModels},
	"GET /v1/doctor":               {list: listedFindings},
	"GET /v1/scheduler":            {},
	"GET /v1/workers":              {whole: true},
	"GET /v1/webhooks":             {whole: true},

	"GET /v1/webhooks/{name}/deliveries": {list: listedDeliveries},

	"GET /metrics":      {whole: true},
	"GET /openapi.json": {public: true},
	"GET /healthz":      {public: true},
	"GET /readyz":       {public: true},

	"GET /v1/models":                     {list: listedNames, bound: true},
	"GET /v1/models/{id}":                {of: "agent", bound: true},
	"GET /v1/responses/{id}":             {of: "response", bound: true},
	"GET /v1/responses/{id}/input_items": {of: "response", bound: true},
	"GET /v1/conversations/{id}":         {of: "conversation", bound: true},

	"POST /v1/messages":             {bound: true, part: "sending"},
	"POST /v1/responses":            {bound: true, part: "sending"},
	"POST /v1/conversations":        {bound: true, part: "sending"},
	"POST /v1/messages/retry":       {part: "bulk retries"},
	"POST /v1/messages/{id}/cancel": {of: "message", bound: true, body: reason, want: []int{200, 202, 409}},
	"POST /v1/messages/{id}/finish": {of: "message", bound: true, body: reason, want: []int{200, 202, 409}},
	"POST /v1/turns/{id}/cancel":    {of: "turn", bound: true, body: reason, want: []int{200, 202, 409}},
	"POST /v1/turns/{id}/finish":    {of: "turn", bound: true, body: reason, want: []int{200, 202, 409}},
	"POST /v1/turns/{id}/retry": {of: "turn", bound: true, body: `{"anyway":true}`,
		want: []int{200, 201, 409}},
	"POST /v1/asks/{id}/answer": {of: "ask", bound: true, body: `{"decision":"denied","hash":"x"}`,
		want: []int{400, 409}},
	"POST /v1/responses/{id}/cancel":        {of: "response", bound: true, want: []int{200, 403}},
	"POST /v1/levels/pin":                   {of: "agent", body: `{"agent":"ID","level":"low"}`},
	"POST /v1/levels/unpin":                 {of: "agent", body: `{"agent":"ID"}`},
	"POST /v1/schedules/{agent}/{name}/run": {of: "schedule", want: []int{200, 201}},
	"POST /v1/scheduler/pause":              {whole: true, body: reason},
	"POST /v1/scheduler/resume":             {whole: true},
}

func pageOf(scope string, v visible) visible {
	v.scopes = []string{scope}
	v.form = v.body != ""
	if v.of != "" && v.want == nil {
		v.want = []int{200, 303}
	}
	return v
}

const because = "reason=enough"

// visiblePages says it of each route of the page.
var visiblePages = map[string]visible{
	"GET /{$}":                         pageOf("read", visible{}),
	"GET /turns":                       pageOf("read", visible{list: inPage(listedTurns, `href="/turns/(\d+)"`)}),
	"GET /turns/{id}":                  pageOf("read", visible{of: "turn"}),
	"GET /turns/{id}/requests/{round}": pageOf("read", visible{of: "turn", whole: true, want: []int{200, 404}}),
	"GET /inbox":                       pageOf("read", visible{list: inPage(listedMessages, `id="message-(\d+)"`)}),
	"GET /inbox/{id}":                  pageOf("read", visible{of: "message"}),
	"GET /replies": pageOf("read",
		visible{list: inPage(listedReplies, `href="/inbox/(\d+)#reply"`)}),
	"GET /agents":          pageOf("read", visible{list: inPage(listedAgents, `id="agent-([a-z]+)"`)}),
	"GET /agents/{name}":   pageOf("read", visible{of: "agent"}),
	"GET /webhooks":        pageOf("read", visible{whole: true}),
	"GET /webhooks/{name}": pageOf("read", visible{list: inPage(listedDeliveries, `id="delivery-(\d+)"`)}),
	"GET /doctor":          pageOf("read", visible{}),
	"GET /lanes":           pageOf("read", visible{list: inPage(listedLanes, `id="lane-([^"]+)"`)}),
	"GET /schedules":       pageOf("read", visible{}),
	"GET /conversation":    pageOf("read", visible{want: []int{400}, part: "transcripts"}),
	"GET /outputs/{id}":    pageOf("read", visible{of: "output"}),
	"GET /asks":            pageOf("read", visible{list: inPage(listedAsks, `id="ask-(\d+)"`)}),
	"GET /asks/{id}":       pageOf("read", visible{of: "ask"}),

	"POST /agents/{name}/level/pin":   pageOf("operate", visible{of: "agent", body: "level=low&hours=1"}),
	"POST /agents/{name}/level/unpin": pageOf("operate", visible{of: "agent", body: "x=y"}),
	"POST /asks/{id}/answer": pageOf("answer", visible{of: "ask", body: "decision=denied&hash=x",
		want: []int{400, 409}}),
	"POST /inbox":              pageOf("send", visible{body: "x=y", part: "sending"}),
	"POST /inbox/retry-failed": pageOf("operate", visible{body: "x=y", part: "bulk retries"}),
	"POST /inbox/{id}/cancel": pageOf("operate", visible{of: "message", body: because,
		want: []int{303, 409}}),
	"POST /turns/{id}/cancel": pageOf("operate", visible{of: "turn", body: because,
		want: []int{303, 409}}),
	"POST /turns/{id}/finish": pageOf("operate", visible{of: "turn", body: because,
		want: []int{303, 409}}),
	"POST /turns/{id}/retry": pageOf("operate", visible{of: "turn", body: "anyway=yes",
		want: []int{303, 409}}),
	"POST /scheduler/pause":                 pageOf("operate", visible{whole: true, body: because, want: []int{303}}),
	"POST /scheduler/resume":                pageOf("operate", visible{whole: true, body: "x=y", want: []int{303}}),
	"POST /schedules/{agent}/{name}/pause":  pageOf("operate", visible{of: "schedule", body: because}),
	"POST /schedules/{agent}/{name}/resume": pageOf("operate", visible{of: "schedule", body: because}),
	"POST /schedules/{agent}/{name}/run":    pageOf("operate", visible{of: "schedule", body: "x=y"}),
	"GET /sign-in":                          {public: true},
	"POST /sign-in":                         {public: true},
	"POST /sign-out":                        {public: true},
}

// pagePatterns lists the methods and paths of the page, without its assets.
func pagePatterns() (all []string) {
	for _, r := range page.New(page.Config{}).Routes() {
		if r.Scope != "" || !strings.Contains(r.Path, ".") {
			all = append(all, r.Pattern())
		}
	}
	return all
}

// TestEveryRouteSaysWhatItShows compares the tables with the routes.
func TestEveryRouteSaysWhatItShows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns []string
		table    map[string]visible
	}{{patterns(), visibleRoutes}, {pagePatterns(), visiblePages}} {
		if in := slices.Sorted(maps.Keys(c.table)); !slices.Equal(slices.Sorted(slices.Values(c.patterns)), in) {
			t.Errorf("the routes are %q; say here what each shows, of %q", c.patterns, in)
		}
	}
	for _, r := range httpapi.New(httpapi.Config{}).Routes() {
		if v := visibleRoutes[r.Pattern()]; !v.public && v.bound != r.OfUser {
			t.Errorf("%s: for a token of a user: %t, want %t", r.Pattern(), r.OfUser, v.bound)
		}
	}
}

// An object is what an id names.
type object struct {
	ID, Agent, User string
	Creator         string // the token that alone sees it; empty: those that cover its owner
	Private         bool   // hidden from tokens that may only send
}

func (b bearer) seesObject(o object) bool {
	if o.Creator != "" {
		return b.name == o.Creator
	}
	return b.sees(owner{o.Agent, o.User}) && (!o.Private || b.may("read", "operate"))
}

const messagesOf = "select id::text, agent, user_name, '', sent_by like 'turn:%' from turnkeeper.messages m "

// objectKinds lists the objects of each kind, and an id that none has.
var objectKinds = map[string]struct{ unknown, objects string }{
	"message": {"987654321", messagesOf + "order by id"},
	"watched message": {"987654321", messagesOf + `where closed_at is not null or state = 'waiting'
		or exists (select from turnkeeper.turns t where t.id = m.turn_id and t.state = 'waiting') order by id`},
	"turn": {"987654321", "select id::text, agent, user_name, '', false from turnkeeper.turns order by id"},
	"output": {"output-987654321",
		`select o.id, t.agent, t.user_name, '', false from turnkeeper.outputs o join turnkeeper.turns t
		on t.id = o.turn_id
		where o.id like 'output-%' order by t.id`},
	"ask": {"987654321", `select a.id::text, t.agent, t.user_name, '', false
		from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id order by a.id`},
	"response": {"resp_987654321", `select 'resp_' || m.id, m.agent, m.user_name, '', false
		from turnkeeper.responses join turnkeeper.messages m on m.id = message_id order by m.id`},
	"conversation": {"conv_987654321", `select c.id, '', '', t.name, false
		from turnkeeper.api_conversations c join turnkeeper.api_tokens t on c.sent_by = 'token:' || t.id order by t.id`},
	"agent": {"stranger-7", "select name, name, '*', '', false from turnkeeper.agents order by name"},
	"schedule": {"stranger-7/daily",
		"select agent || '/' || name, agent, '*', '', false from turnkeeper.schedules order by agent"},
}

// A use is a route with what is sent to it.
type use struct {
	visible
	pattern, method, path string
	page                  bool
}

// fromThePage are the headers of a form that a browser sends from the page.
var fromThePage = []string{
	"Content-Type", "application/x-www-form-urlencoded", "Origin", "http://localhost", "Sec-Fetch-Site", "same-origin",
}

func (w *world) send(b bearer, r use, id string) answer {
	w.t.Helper()
	path := strings.NewReplacer("{id}", id, "{agent}/{name}", id, "{$}", "", "{round}", "1").Replace(r.path)
	if r.of == "agent" {
		path = strings.Replace(path, "{name}", id, 1)
	}
	path = strings.Replace(path, "{name}", "hook", 1)
	var headers []string
	if r.form {
		headers = fromThePage
	}
	return w.callUntil(r.stream, b, r.method, path, strings.ReplaceAll(r.body, "ID", id), headers...)
}

// uses lists all routes with their rows in the tables.
func uses() (all []use) {
	for i, table := range []map[string]visible{visibleRoutes, visiblePages} {
		for _, pattern := range slices.Sorted(maps.Keys(table)) {
			method, path, _ := strings.Cut(pattern, " ")
			r := use{table[pattern], pattern, method, path, i == 1}
			if i == 0 {
				r.scopes = allowed[pattern]
			}
			all = append(all, r)
		}
	}
	return all
}

// refusedAtAll reports whether the token may not use the route, whatever it asks for.
func (b bearer) refusedAtAll(r use) bool {
	return !b.may(r.scopes...) || b.user != "" && !r.bound || r.whole && b.agents != nil
}

// tells fails the test if an answer has a name that its bearer must not be shown.
func (w *world) tells(b bearer, what string, a answer) {
	w.t.Helper()
	text := string(a.body)
	for _, name := range b.hidden() {
		where, _, _ := strings.Cut(what, "?")
		if i, once := strings.Index(text, name), [3]string{b.name, name, where}; i >= 0 && !w.told[once] {
			w.told[once] = true
			w.t.Errorf("%s tells %s of %s: …%s…", what, b.name, name, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

// unnamed returns the text of an answer about an id, with a stand-in for the id and without the page around it.
func unnamed(a answer, id string) string {
	id, _, _ = strings.Cut(id, "/") // of a schedule, its agent's name
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(id)+`\b`).ReplaceAllString(refused(a), "ID")
}

// TestWhatEachTokenMaySeeAndDo asks each route for each owner's objects, with each token. What a token does not cover
// is answered like what does not exist, and changes nothing. No answer names an agent or a user that the token does not
// cover.
func TestWhatEachTokenMaySeeAndDo(t *testing.T) {
	w := newWorld(t)
	for _, part := range []struct {
		name string
		run  func(*world)
	}{
		{"lists", (*world).checkLists}, {"pages", (*world).checkPages}, {"transcripts", (*world).checkTranscripts},
		{"counts", (*world).checkCounts}, {"objects", (*world).checkObjects}, {"sending", (*world).checkSending},
		{"bulk retries", (*world).checkBulkRetries}, {"actions", (*world).checkActions},
	} {
		t.Run(part.name, func(t *testing.T) {
			w.t, w.T = t, t
			part.run(w)
		})
	}
}

func (w *world) objects() map[string][]object {
	all := map[string][]object{}
	for kind, k := range objectKinds {
		if all[kind] = storagetest.List[object](w, k.objects); len(all[kind]) < 2 {
			w.t.Errorf("the world has %d objects of the kind %s", len(all[kind]), kind)
		}
	}
	return all
}

// checkObjects asks for objects, and tries on others' what changes them.
func (w *world) checkObjects() {
	objects, before := w.objects(), w.state()
	for _, r := range uses() {
		for _, b := range w.bearers {
			switch {
			case r.public:
			case b.refusedAtAll(r):
				a := w.send(b, r, objectKinds[r.of].unknown)
				if w.tells(b, r.pattern, a); a.status != http.StatusForbidden {
					w.t.Errorf("%s is answered to %s: %d %s", r.pattern, b.name, a.status, refused(a))
				}
			case r.of != "":
				w.object(b, r, objects[r.of])
			case r.method == "GET" && r.list == nil:
				w.allowed(b, r, "")
			}
		}
	}
	if changed := storagetest.Changed(before, w.state()); len(changed) > 0 {
		w.t.Errorf("refused requests have changed %q", changed)
	}
}

// marked lists the kinds of objects that are shown with a text of their owner.
var marked = []string{"message", "turn", "output", "ask"}

func (w *world) allowed(b bearer, r use, id string) answer {
	w.t.Helper()
	want := r.want
	if want == nil {
		want = []int{http.StatusOK}
	}
	a := w.send(b, r, id)
	w.tells(b, r.pattern+" "+id, a)
	if !slices.Contains(want, a.status) {
		w.t.Errorf("%s of %q is answered to %s: %d %s", r.pattern, id, b.name, a.status, refused(a))
	}
	return a
}

// object asks for objects: the clerk's token for each, other tokens for the first and the last of each owner. Of a POST
// it sends only what must be refused.
func (w *world) object(b bearer, r use, all []object) {
	w.t.Helper()
	unknown := objectKinds[r.of].unknown
	none := w.send(b, r, unknown)
	if none.status != http.StatusNotFound && r.want == nil {
		w.t.Errorf("%s of nothing is answered to %s: %d %s", r.pattern, b.name, none.status, refused(none))
	}
	for i, o := range all {
		same := func(x object) bool {
			return x.Agent == o.Agent && x.User == o.User && x.Creator == o.Creator && x.Private == o.Private
		}
		if (b.name != "clerk" || r.page && testing.Short()) && slices.ContainsFunc(all[:i], same) &&
			slices.ContainsFunc(all[i+1:], same) {
			continue
		}
		if b.seesObject(o) {
			if r.method == "GET" {
				a := w.allowed(b, r, o.ID)
				// some turns have no events, and some no round
				mark := owner{o.Agent, o.User}.mark()
				silent := strings.HasSuffix(r.path, "/events") || a.status == http.StatusNotFound
				if slices.Contains(marked, r.of) && !silent && !strings.Contains(string(a.body), mark) {
					w.t.Errorf("%s of %s shows %s nothing %s", r.pattern, o.ID, b.name, mark)
				}
			}
			continue
		}
		a := w.send(b, r, o.ID)
		if a.status != none.status || unnamed(a, o.ID) != unnamed(none, unknown) {
			w.t.Errorf("%s: to %s %s of %s@%s is answered %d %s, and nothing %d %s",
				r.pattern, b.name, o.ID, o.Agent, o.User, a.status, refused(a), none.status, refused(none))
		}
	}
}
