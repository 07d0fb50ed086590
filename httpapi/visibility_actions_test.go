package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"turnkeeper/storage/storagetest"
)

// state returns all rows that requests may change, by name.
func (w *world) state() map[string]string {
	w.t.Helper()
	all := w.Rows()
	for _, row := range storagetest.List[struct{ Name, Text string }](w, `
		select 'ask ' || id, to_jsonb(a)::text from turnkeeper.asks a
		union all select 'level ' || agent, to_jsonb(p)::text from turnkeeper.pinned_levels p
		union all select 'schedule ' || agent, to_jsonb(s)::text from turnkeeper.schedules s
		union all select 'retry ' || message_id, to_jsonb(r)::text from turnkeeper.retries r
		union all select 'conversation ' || id, to_jsonb(c)::text from turnkeeper.api_conversations c
		union all select 'settings', to_jsonb(s)::text from turnkeeper.settings s`) {
		all[row.Name] = row.Text
	}
	return all
}

// owners of rows: see ownerOf.
type rowOwners struct{ turns, messages, asks map[string]owner }

func (w *world) rowOwners() (found rowOwners) {
	of := func(sql string) map[string]owner {
		all := map[string]owner{}
		for _, o := range storagetest.List[struct{ ID, Agent, User string }](w, sql) {
			all[o.ID] = owner{o.Agent, o.User}
		}
		return all
	}
	const ours = " where t.conversation not like 'turn-%'" // what ends with its parent is not the parent's owner's
	return rowOwners{
		turns:    of("select id::text, agent, user_name from turnkeeper.turns t" + ours),
		messages: of("select id::text, agent, user_name from turnkeeper.messages t" + ours),
		asks: of(
			"select a.id::text, t.agent, t.user_name from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id" + ours),
	}
}

// of returns the owner of a row that state names. known is false for rows of sub-agents, and for jobs and lanes.
func (o rowOwners) of(name string) (_ owner, known bool) {
	kind, id, _ := strings.Cut(name, " ")
	id, _, _ = strings.Cut(id, " ")
	table := o.turns
	switch kind {
	case "message", "retry":
		table = o.messages
	case "ask":
		table = o.asks
	case "level", "schedule":
		return owner{id, "*"}, true
	case "job", "lane", "conversation", "settings":
		return owner{}, false
	}
	found, known := table[id]
	return found, known
}

// acting are the tokens that change what they cover, the one with the least rights first.
var acting = []string{"clerk-anna", "anna", "anna-answer", "clerk-answer", "clerk"}

// checkActions sends each POST for the last object of each owner that a token covers. It changes nothing of another
// owner.
func (w *world) checkActions() {
	for _, name := range acting {
		b, objects, before := w.bearer(name), w.objects(), w.state()
		for _, r := range uses() {
			if r.method == "POST" && r.of != "" && !b.refusedAtAll(r) {
				w.acts(b, r, objects[r.of])
			}
		}
		changed, owners := storagetest.Changed(before, w.state()), w.rowOwners()
		if len(changed) == 0 && b.may("operate") {
			w.t.Errorf("%s has changed nothing", name)
		}
		for _, row := range changed {
			if of, known := owners.of(row); known && !b.sees(of) {
				w.t.Errorf("%s has changed %s of %+v", name, row, of)
			}
		}
	}
}

func (w *world) acts(b bearer, r use, all []object) {
	w.t.Helper()
	for i, o := range all {
		later := slices.ContainsFunc(all[i+1:], func(x object) bool {
			return x.Agent == o.Agent && x.User == o.User && b.seesObject(x)
		})
		if b.seesObject(o) && !later {
			w.allowed(b, r, o.ID)
		}
	}
}

// checkSending sends a message to each agent, and to one that does not exist, as each user, by each route that sends.
func (w *world) checkSending() {
	for _, b := range w.bearers {
		for _, agent := range []string{"clerk", "desk", "ghost", "stranger-7"} {
			for _, user := range []string{"anna", "bert", ""} {
				w.sendBy(b, agent, user)
			}
		}
	}
}

// sendBy compares where the messages go that the routes accept with where they may go, and the answers of those that
// are refused.
func (w *world) sendBy(b bearer, agent, user string) {
	w.t.Helper()
	as := user
	if user == "" {
		as = b.user
	}
	may := b.may("send") && b.seesAgent(agent) && slices.Contains(agentsOfWorld, agent) && as == orUser(b.user, as)
	form := url.Values{"agent": {agent}, "user": {user}, "body": {"hello"}, "number": {fmt.Sprint(b.name, agent, user)}}
	response := fmt.Sprintf(`{"model":%q,"user":%q,"input":"hello","background":true}`, agent, user)
	for _, way := range []struct {
		path, body string
		headers    []string
		created    int
	}{
		{"/v1/messages", fmt.Sprintf(`{"agent":%q,"user":%q,"body":"hello"}`, agent, user), nil, http.StatusCreated},
		{"/v1/responses", strings.Replace(response, `"user":"",`, "", 1), nil, http.StatusOK},
		{"/inbox", form.Encode(), fromThePage, http.StatusSeeOther},
	} {
		newest := one[int64](w.env, "select max(id) from turnkeeper.messages")
		a := w.call(b, "POST", way.path, way.body, way.headers...)
		what := fmt.Sprintf("%s to %s as %q by %s", way.path, agent, user, b.name)
		sent := storagetest.List[struct{ Agent, User, By string }](w,
			fmt.Sprintf("select agent, user_name, sent_by from turnkeeper.messages where id > %d", newest))
		if yes := may && (way.path != "/inbox" || b.user == ""); yes {
			by := "token:" + strconv.FormatInt(one[int64](w.env, "select id from turnkeeper.api_tokens where name = $1",
				b.name), 10)
			if w.tells(b, what, a); a.status != way.created || len(sent) != 1 || sent[0].Agent != agent ||
				sent[0].User != as || sent[0].By != by {
				w.t.Errorf("%s is answered %d %s, and %+v is sent", what, a.status, refused(a), sent)
			}
			continue
		}
		if a.status < 400 || a.status >= 500 || len(sent) > 0 {
			w.t.Errorf("%s is answered %d %s, and %+v is sent", what, a.status, refused(a), sent)
		}
		// The answer may repeat what was sent, and name nothing else.
		var said []string
		for _, name := range []string{agent, user} {
			said = append(said, `\"`+name+`\"`, "", `"`+name+`"`, "", "&#34;"+name+"&#34;", "", "`"+name+"`", "")
		}
		a.body = []byte(strings.NewReplacer(said...).Replace(string(a.body)))
		w.tells(b, what, a)
	}
}

func orUser(own, named string) string {
	if own == "" {
		return named
	}
	return own
}

// checkBulkRetries retries all failed messages with tokens for one agent. Others' stay as they are.
func (w *world) checkBulkRetries() {
	failed := func(agent string) (ids []string) {
		for _, m := range storagetest.List[struct{ ID string }](w,
			fmt.Sprintf(`select id::text from turnkeeper.messages m where state =
			'failed' and agent = '%s'
			and not exists (select from turnkeeper.retries r where r.message_id = m.id) order by id`, agent)) {
			ids = append(ids, m.ID)
		}
		return ids
	}
	clerk, desks := w.bearer("clerk"), failed("desk")
	if len(failed("clerk")) == 0 || len(desks) == 0 {
		w.t.Fatal("no message has failed")
	}
	retry := func(b bearer, more string) answer {
		return w.call(b, "POST", "/v1/messages/retry", `{"state":"failed"`+more+`}`)
	}
	another, none := retry(clerk, `,"agent":"desk"`), retry(clerk, `,"agent":"stranger-7"`)
	if another.status != none.status || string(another.body) != string(none.body) ||
		another.status != http.StatusNotFound {
		w.t.Errorf("another's is answered %d %s, and none %d %s", another.status, another.body, none.status, none.body)
	}
	for _, name := range []string{"anna", "clerk-anna", "desk-bert", "ghost"} {
		retry(w.bearer(name), "")
	}
	want := failed("clerk")
	a := retry(clerk, "")
	w.tells(clerk, "a bulk retry", a)
	var retried []string
	for _, m := range regexp.MustCompile(`"retry_of":(\d+)`).FindAllStringSubmatch(string(a.body), -1) {
		retried = append(retried, m[1])
	}
	if slices.Sort(retried); !slices.Equal(retried, slices.Sorted(slices.Values(want))) || len(failed("clerk")) > 0 {
		w.t.Errorf("%v are retried, want %v", retried, want)
	}
	if w.call(clerk, "POST", "/inbox/retry-failed", "x=y", fromThePage...); !slices.Equal(failed("desk"), desks) {
		w.t.Errorf("of the desk's failed messages, %v are not retried, want %v", failed("desk"), desks)
	}
	if w.call(w.bearer("desk"), "POST", "/inbox/retry-failed", "x=y", fromThePage...); len(failed("desk")) > 0 {
		w.t.Errorf("of the desk's failed messages, %v are not retried", failed("desk"))
	}
}

// checkCounts compares what is counted with the lists of what is counted.
func (w *world) checkCounts() {
	count := func(b bearer, path, query string, states ...string) (n int) {
		for _, state := range states {
			r := uses()[slices.IndexFunc(uses(), func(r use) bool { return r.pattern == "GET "+path })]
			r.path = strings.Replace(r.path, "{name}", "hook", 1)
			values, err := url.ParseQuery(query)
			w.must(err)
			values.Set("state", state)
			names, _ := w.walk(b, r, values)
			n += len(names)
		}
		return n
	}
	all := w.bearer("all")
	for name, agents := range map[string][]string{"all-answer": {""}, "clerk": {"clerk"}, "both": agentsOfWorld,
		"ghost": {"ghost"}} {
		b, open := w.bearer(name), 0
		for _, agent := range agents {
			open += count(b, "/v1/asks", strings.TrimSuffix("agent="+agent, "agent="), "open")
		}
		a := w.call(b, "GET", "/agents", "")
		badge := regexp.MustCompile(`id="open-asks"> <span class="badge">(\d+)`).FindSubmatch(a.body)
		if shown := append(badge, nil, []byte("0"))[1]; badge != nil && string(shown) != fmt.Sprint(open) ||
			badge == nil && open > 0 {
			w.t.Errorf("%s is shown that %s asks are open, and lists %d", name, shown, open)
		}
	}
	hook := decode[list[map[string]any]](w.t, w.call(all, "GET", "/v1/webhooks", "")).Items[0]
	for field, state := range map[string]string{"pending": "pending", "dead": "dead"} {
		if n := count(all, "/v1/webhooks/{name}/deliveries", "limit=100", state); n == 0 ||
			fmt.Sprint(hook[field]) != fmt.Sprint(n) {
			w.t.Errorf("%v deliveries are %s, and %d are listed", hook[field], state, n)
		}
	}
	waiting := map[string]int{}
	for _, m := range decode[list[map[string]any]](w.t,
		w.call(all, "GET", "/v1/messages?state=waiting&limit=100", "")).Items {
		waiting[fmt.Sprint(m["lane"])]++
	}
	counted := map[string]int{}
	for _, l := range decode[list[map[string]any]](w.t, w.call(all, "GET", "/v1/lanes?limit=100", "")).Items {
		if n := int(l["waiting_messages"].(float64)); n > 0 {
			counted[fmt.Sprint(l["lane"])] = n
		}
	}
	for lane, n := range waiting {
		if counted[lane] != n && counted[lane] != 0 { // a lane that never had a turn is not listed
			w.t.Errorf("of lane %s, %d messages are counted, and %d listed", lane, counted[lane], n)
		}
	}
	if len(counted) < len(w.owners) || len(waiting) < len(counted) {
		w.t.Errorf("%d lanes have waiting messages, and %d messages wait", len(counted), len(waiting))
	}
}

// A list is a page of a list.
type list[V any] struct{ Items []V }
