package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
)

// An entry is a row that a list shows.
type entry struct {
	Name, Agent, User, Conversation, State, Class, Words string
	Turn                                                 int64
	At                                                   time.Time
}

// A listing is a list: what it shows, in which order, and by what it can be filtered.
type listing struct {
	entries string // SQL of all entries, in order; of the page and of lists without a cursor, in any order
	items   string // the field of the entries; empty: items
	name    func(item map[string]any) string
	page    *regexp.Regexp // finds the names in a page; nil: JSON
	mute    bool           // a page that shows no names that can be found
	cursor  string         // the parameter; empty: the list has one page
	filters []string       // parameters; agent is the first one if it has that
	states  states
}

// inPage is a list that the page shows. Its names are found by a pattern; empty: they cannot be.
func inPage(l *listing, pattern string) *listing {
	shown := *l
	shown.cursor, shown.mute = "", pattern == ""
	if pattern != "" {
		shown.page = regexp.MustCompile(pattern)
	}
	shown.filters = slices.DeleteFunc(slices.Clone(l.filters), func(f string) bool {
		return f == "turn" || f == "sub_agents"
	})
	return &shown
}

func field(name string) func(map[string]any) string {
	return func(item map[string]any) string { return fmt.Sprint(item[name]) }
}

const noMore = ", '', '', '', '', 0, now()"

var (
	searchable     = []string{"agent", "user", "state", "conversation", "time", "error_class", "text"}
	listedMessages = &listing{
		entries: `select m.id::text, m.agent, m.user_name, m.conversation, m.state, coalesce(t.error_class, ''), m.body, 0, m.accepted_at
			from turnkeeper.messages m left join turnkeeper.turns t on t.id = m.turn_id order by m.id desc`,
		name: field("id"), cursor: "cursor", filters: searchable, states: states{"..", "MessageState"},
	}
	listedTurns = &listing{
		entries: `select t.id::text, t.agent, t.user_name, t.conversation, t.state, coalesce(t.error_class, ''), m.body, t.id, t.created_at
			from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id order by t.id desc`,
		name: field("id"), cursor: "cursor", filters: searchable, states: states{"..", "TurnState"},
	}
	listedReplies = &listing{
		entries: `select message_id::text, agent, user_name, conversation, case when parent_turn_id is null then 'top' else 'below'
			end, '', '', 0, created_at
			from turnkeeper.replies order by id`,
		name: field("message_id"), cursor: "after", filters: []string{"agent", "user", "sub_agents"},
	}
	listedAsks = &listing{
		entries: `select a.id::text, t.agent, t.user_name, t.conversation, a.state, '', '', t.id, a.opened_at
			from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id order by a.id desc`,
		name: field("id"), cursor: "cursor", filters: []string{"agent", "user", "state", "turn"},
		states: states{"../asks", "State"},
	}
	listedDeliveries = &listing{
		entries: `select d.id::text, t.agent, t.user_name, '', d.state, '', '', 0, d.created_at from turnkeeper.webhook_deliveries d
			left join turnkeeper.replies r on r.id = d.reply_id left join turnkeeper.asks a on a.id = d.ask_id
			join turnkeeper.turns t on t.id = coalesce(r.turn_id, a.turn_id) order by d.id desc`,
		name: field("id"), cursor: "cursor", filters: []string{"agent", "user", "state"},
		states: states{"../internal/outbox", "DeliveryState"},
	}
	listedLanes = &listing{
		entries: "select lane, agent, '*'" + noMore + ` from (select lane, agent, grant_id from turnkeeper.leases
			union select m.lane, m.agent, l.grant_id from turnkeeper.messages m left join turnkeeper.leases l using (lane) where m.state = 'waiting' and not m.held
			union select t.lane, t.agent, l.grant_id from turnkeeper.turns t left join turnkeeper.leases l using (lane) where t.ended_at is null) l
			order by grant_id is null, lane`,
		name: field("lane"), cursor: "cursor", filters: []string{"agent"},
	}
	listedAgents = &listing{entries: "select name, name, '*'" + noMore + " from turnkeeper.agents",
		name: field("name")}
	listedNames = &listing{entries: "select name, name, '*'" + noMore + " from turnkeeper.agents", items: "data",
		name: field("id")}
	listedLevels = &listing{entries: "select name, name, '*'" + noMore + " from turnkeeper.agents", items: "agents",
		name: field("agent")}
	listedSchedules = &listing{
		entries: "select agent || message, agent, '*'" + noMore + " from turnkeeper.schedules",
		name:    func(item map[string]any) string { return fmt.Sprint(item["agent"], item["message"]) },
	}
	listedModels = &listing{
		entries: "select distinct m, name, '*'" + noMore + " from turnkeeper.agents, unnest(models) m",
		name:    field("model"),
	}
	listedFindings = &listing{
		entries: "select 'schedule ' || agent, agent, '*'" + noMore + " from turnkeeper.schedules", items: "checks",
		name: func(item map[string]any) string {
			if name := fmt.Sprint(item["name"]); strings.HasPrefix(name, "schedule ") {
				return name
			}
			return ""
		},
	}
)

// read reads the names in an answer, and the cursor of the next page.
func (l *listing) read(w *world, a answer) (names []string, next string) {
	w.t.Helper()
	if l.page != nil {
		for _, found := range l.page.FindAllStringSubmatch(string(a.body), -1) {
			names = append(names, found[1])
		}
		return names, ""
	}
	if l.mute {
		return nil, ""
	}
	page := decode[map[string]json.RawMessage](w.t, a)
	items := l.items
	if items == "" {
		items = "items"
	}
	for _, item := range decode[[]map[string]any](w.t, answer{body: page[items]}) {
		if name := l.name(item); name != "" {
			names = append(names, name)
		}
	}
	if next = string(page["next"]); next == "null" {
		next = ""
	}
	return names, next
}

// walk reads all pages of a list.
func (w *world) walk(b bearer, r use, query url.Values) (names []string, pages int) {
	w.t.Helper()
	query = copied(query)
	for ; pages < 200; pages++ {
		sent := r
		sent.path = r.path + "?" + query.Encode()
		a := w.send(b, sent, "")
		w.tells(b, sent.path, a)
		if a.status != 200 {
			w.t.Errorf("%s is answered to %s: %d %s", sent.path, b.name, a.status, refused(a))
			return names, pages
		}
		found, next := r.list.read(w, a)
		if names = append(names, found...); next == "" {
			return names, pages + 1
		}
		query.Set(r.list.cursor, next)
	}
	w.t.Errorf("%s?%s of %s does not end", r.path, query.Encode(), b.name)
	return names, pages
}

func copied(q url.Values) url.Values {
	c := url.Values{}
	for k, v := range q {
		c[k] = slices.Clone(v)
	}
	return c
}

// want returns the names of the entries that a list must show, or the status of the refusal.
func (l *listing) want(b bearer, all []entry, query url.Values, page bool) (names []string, status int) {
	agent, user := query.Get("agent"), query.Get("user")
	if len(l.filters) > 0 {
		switch {
		case agent == "" && b.agents != nil && (len(b.agents) == 1 || page):
			agent = b.agents[0]
		case agent == "" && b.agents != nil:
			return nil, 400
		case agent != "" && !b.seesAgent(agent):
			return nil, 403
		}
	}
	if b.user != "" && user != "" && user != b.user {
		return nil, 404
	}
	conversation, named := query.Get("conversation"), query.Has("conversation")
	if named && user == "" {
		user = b.user
	}
	for _, e := range all {
		since, _ := time.Parse(time.RFC3339Nano, query.Get("since"))
		until, err := time.Parse(time.RFC3339Nano, query.Get("until"))
		switch {
		case !b.sees(owner{e.Agent, e.User}), agent != "" && e.Agent != agent, user != "" && e.User != user,
			named && (e.Conversation != conversation || e.User != user), query.Get("state") != "" &&
				e.State != query.Get("state"),
			query.Get("error_class") != "" && e.Class != query.Get("error_class"), !strings.Contains(e.Words,
				query.Get("text")),
			query.Get("turn") != "" && fmt.Sprint(e.Turn) != query.Get("turn"), query.Get("sub_agents") == "false" &&
				e.State != "top",
			e.At.Before(since), err == nil && !e.At.Before(until):
		case !slices.Contains(names, e.Name):
			names = append(names, e.Name)
		}
	}
	return names, 200
}

// queries returns the values of one filter. Limits are exactly at entries of shown, which the bearer sees.
func (l *listing) queries(w *world, filter string, all, shown []entry) (queries []url.Values) {
	add := func(pairs ...string) {
		q := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			q.Set(pairs[i], pairs[i+1])
		}
		queries = append(queries, q)
	}
	at := func(n int) string { return shown[n].At.UTC().Format(time.RFC3339Nano) }
	switch filter {
	case "user":
		add("user", "anna")
		add("user", "bert")
		add("user", "carl")
	case "state":
		for _, state := range l.states.all(w.t) {
			add("state", state)
		}
	case "conversation":
		add("conversation", "main")
		add("conversation", "main", "user", "bert")
	case "time":
		newer, older := len(shown)/3, 2*len(shown)/3 // of a list of the newest first
		add("since", at(older))
		add("until", at(newer))
		add("since", at(older), "until", at(newer))
	case "error_class":
		add("error_class", "overloaded")
	case "text":
		add("text", "waits")
	case "turn":
		add("turn", fmt.Sprint(all[0].Turn))
		add("turn", fmt.Sprint(all[len(all)-1].Turn))
		add("turn", fmt.Sprint(shown[0].Turn))
	case "sub_agents":
		add("sub_agents", "false")
	}
	return queries
}

// compare compares a list with what it must show.
func (w *world) compare(b bearer, r use, all []entry, query url.Values) {
	w.t.Helper()
	want, status := r.list.want(b, all, query, r.page)
	if status == 200 && query.Get("conversation") != "" && query.Get("agent") == "" &&
		(b.agents == nil || len(b.agents) > 1) {
		status = 400 // conversation requires agent
	}
	if status != 200 {
		sent := r
		sent.path = r.path + "?" + query.Encode()
		a := w.send(b, sent, "")
		if a.status != status {
			w.t.Errorf("%s is answered to %s: %d %s, want %d", sent.path, b.name, a.status, refused(a), status)
		}
		if agent := query.Get("agent"); status == 403 {
			query = copied(query)
			query.Set("agent", "stranger-7")
			sent.path = r.path + "?" + query.Encode()
			if none := w.send(b, sent, ""); none.status != status || unnamed(none, "stranger-7") != unnamed(a, agent) {
				w.t.Errorf("%s: to %s another's agent is answered %d %s, and none %d %s",
					r.pattern, b.name, a.status, refused(a), none.status, refused(none))
			}
		}
		return
	}
	got, _ := w.walk(b, r, query)
	if r.list.mute {
		return
	}
	if r.page || r.list.cursor == "" {
		slices.Sort(got)
		got = slices.Compact(got)
		want = slices.Sorted(slices.Values(want))
	}
	if r.pattern == "GET /v1/lanes" {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%s?%s shows %s\n%q, want\n%q", r.path, query.Encode(), b.name, got, want)
	}
}

// filtering are the tokens that try each filter.
var filtering = []string{"all-answer", "clerk", "clerk-anna"}

// checkLists compares each list, by each filter, with the rows that the token covers and the filter selects.
func (w *world) checkLists() {
	for _, r := range uses() {
		if r.list == nil {
			continue
		}
		all := storagetest.List[entry](w, r.list.entries)
		for _, b := range w.bearers {
			if b.refusedAtAll(r) {
				continue
			}
			agents := []string{""}
			if len(r.list.filters) > 0 {
				if agents = append(agents, "desk"); b.agents == nil {
					agents = append(agents, "clerk")
				}
			}
			for _, agent := range agents {
				base := url.Values{}
				if agent != "" {
					base.Set("agent", agent)
				}
				if len(r.list.filters) > 0 {
					base.Set("limit", "100")
				}
				w.compare(b, r, all, base)
				if !slices.Contains(filtering, b.name) || r.page && testing.Short() ||
					(agent == "clerk") != (b.agents == nil) {
					continue
				}
				names, _ := r.list.want(b, all, base, r.page)
				shown := slices.DeleteFunc(slices.Clone(all), func(e entry) bool {
					return !slices.Contains(names, e.Name)
				})
				if len(shown) == 0 || len(r.list.filters) == 0 {
					continue
				}
				for _, filter := range r.list.filters[1:] {
					for _, q := range r.list.queries(w, filter, all, shown) {
						for name := range base {
							q.Set(name, base.Get(name))
						}
						w.compare(b, r, all, q)
					}
				}
			}
		}
	}
}

// checkPages walks each list of the API by pages that end before, at and after its last entry. Each entry is shown
// once.
func (w *world) checkPages() {
	for _, r := range uses() {
		if r.list == nil || r.list.cursor == "" || r.page {
			continue
		}
		all := storagetest.List[entry](w, r.list.entries)
		for _, name := range []string{"all-answer", "clerk", "clerk-anna"} {
			b := w.bearer(name)
			if b.refusedAtAll(r) {
				continue
			}
			query := url.Values{"agent": {"clerk"}}
			want, _ := r.list.want(b, all, query, false)
			n := len(want)
			for _, limit := range []int{1, n/2 - 1, n / 2, n/2 + 1, n - 1, n, n + 1} {
				if limit < 1 || limit > 100 || limit < 3 && name != "clerk-anna" {
					continue
				}
				query.Set("limit", fmt.Sprint(limit))
				got, pages := w.walk(b, r, query)
				if r.pattern == "GET /v1/lanes" {
					slices.Sort(got)
					slices.Sort(want)
				}
				if !slices.Equal(got, want) || pages > n/limit+2 {
					w.t.Errorf("%s by %d shows %s, in %d pages,\n%q, want\n%q", r.pattern, limit, name,
						pages, got, want)
				}
			}
		}
	}
}

// checkTranscripts compares the transcript of each conversation with its messages.
func (w *world) checkTranscripts() {
	all := storagetest.List[entry](w, listedMessages.entries)
	r := use{pattern: "GET /v1/transcript", method: "GET", path: "/v1/transcript", visible: visible{list: &listing{
		cursor: "cursor", name: func(item map[string]any) string {
			return fmt.Sprint(item["message"].(map[string]any)["id"])
		},
		filters: []string{"agent"},
	}}}
	for _, b := range w.bearers {
		if !b.may("read") {
			continue
		}
		for _, o := range w.owners {
			for _, conversation := range []string{"main", "talk", "none"} {
				query := url.Values{"agent": {o.agent}, "conversation": {conversation}, "limit": {"3"}}
				if o.user != "" {
					query.Set("user", o.user)
				}
				w.compare(b, r, all, query)
				if b.user != "" {
					continue // the page is not for it
				}
				if a := w.call(b, "GET", "/conversation?"+query.Encode(), ""); b.user == "" {
					if a.status == 200 {
						w.tells(b, "/conversation", a)
					}
					if there := a.status == 200; there != (b.seesAgent(o.agent) && conversation != "none") {
						w.t.Errorf("the page of conversation %s of %+v is answered to %s: %d", conversation, o,
							b.name, a.status)
					}
				}
			}
		}
	}
}
