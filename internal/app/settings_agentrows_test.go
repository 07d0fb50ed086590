package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// newWorldForAgents prepares a world with what the settings of agents name, and with more settings.
func newWorldForAgents(t *testing.T, more ...string) *settingsWorld {
	server := httptest.NewServer(http.HandlerFunc(serveMCP))
	t.Cleanup(server.Close)
	w := newSettingsWorld(t, append(more, "mcp_servers: {box: {url: "+server.URL+"}}")...)
	site := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte("the site"))
	}))
	t.Cleanup(site.Close)
	w.site = site.URL
	for _, name := range []string{"first", "second"} {
		folder := filepath.Join(w.folder, name)
		if os.Mkdir(folder, 0o700) != nil || os.WriteFile(filepath.Join(folder, "name.txt"), []byte("in "+name),
			0o600) != nil {
			t.Fatal("the folder was not written")
		}
	}
	w.write("child", "lane: conversation\nsub_agents: [grandchild]")
	w.write("grandchild", "lane: conversation\nsub_agents: [last]")
	w.write("last", "lane: conversation")
	return w
}

// ownBounds are settings of a worker that differ from the defaults where they can.
var ownBounds = map[string]string{
	"extraction_model": "played/extractor", "max_rounds": "4", "max_tool_calls": "3", "max_duration": "60s",
	"tool_timeout": "40s", "give_up_after": "2h",
	"max_tool_result_chars": "300", "async_token_threshold": "150", "async_timeout": "20s", "freshness_window": "900s",
	"max_sub_agents":      "3",
	"max_sub_agent_depth": "3", "max_tree_sub_agents": "4", "sub_agent_timeout": "3h", "reply_sink": "allow",
	"continuation": "true", "paging": "true",
	"async": "true", "output_handles": "false", "summarise": "true",
}

// lines returns settings as lines of a file, without those that a text has already.
func lines(settings map[string]string, without string) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if !strings.Contains("\n"+without, "\n"+key+":") {
			all = append(all, key+": "+settings[key])
		}
	}
	return all
}

func agentRows(w *settingsWorld) []agentRow {
	return slices.Concat(modelRows(), scheduleRows(), replyRows(), laneRows(), toolRows(w), subAgentRows(),
		boundRows(), resultRows(),
		requestRows(), askRows(), budgetRows(), levelRows("low"), levelRows("critical"))
}

// asked returns the model that answered the newest round of a turn.
func asked(v operate.TurnView) string {
	if len(v.Rounds) == 0 {
		return "no model"
	}
	return v.Rounds[len(v.Rounds)-1].Model
}

// modelsWith returns the models, each once, of all requests that contain a text.
func (k talk) modelsWith(text string) string {
	var models []string
	for _, r := range k.model.Requests() {
		if strings.Contains(string(r.Body), text) {
			models = append(models, r.Chat().Model)
		}
	}
	slices.Sort(models)
	return strings.Join(slices.Compact(models), " ")
}

func modelRows() []agentRow {
	model := func(k talk) string { return asked(k.say("do: say hello")) }
	return []agentRow{
		{key: "description", values: [2]string{"Counts.", "Sorts."}, see: func(k talk) string {
			return storagetest.One[string](k.db, "select description from turnkeeper.agents where name = $1", k.agent)
		}, want: [3]string{"Counts.", "Sorts.", ""}},
		{key: "model", values: [2]string{"played/one", "played/two"}, see: model, want: [3]string{"one",
			"two", "default"}},
		{key: "fallback_models", values: [2]string{"[played/one]", "[played/two]"},
			with: "model: played/missing-%a\ngive_up_after: 0s", see: model,
			want: [3]string{"one", "two", "no model"}},
		{key: "extraction_model", values: [2]string{"played/one", "played/two"},
			with: "model: played/chain\ntools: [echo]\nasync_token_threshold: 0",
			see: func(k talk) string {
				mark := "marked by " + k.agent + k.name
				k.say(
					fmt.Sprintf(
						`do: echo {"text":%q} | get_tool_output {"id":"OUTPUT","mode":"extract","query":"Who?"} | say so`, mark))
				return k.modelsWith(mark)
			}, want: [3]string{"chain one", "chain two", "chain extractor"}},
	}
}

func scheduleRows() []agentRow {
	row := func(key string, first, second string, with string, see func(k talk) string, want [3]string) agentRow {
		return agentRow{key: "schedule." + key, values: [2]string{first, second},
			with: "model: played/%a\nschedule:\n  " + with + "\n  %s", see: see, want: want}
	}
	due := func(k talk) string {
		// the next tick plans a changed schedule
		k.db.Await("select next_due is not null from turnkeeper.schedules where agent = $1", k.agent)
		return storagetest.One[string](k.db,
			`select to_char(next_due at time zone 'UTC', 'MM-DD HH24:MI') from turnkeeper.schedules where agent = $1`,
			k.agent)
	}
	const often = `cron: "@every 1s"`
	return []agentRow{
		row("name", "red", "blue", often, func(k talk) string {
			return storagetest.One[string](k.db, "select schedule from turnkeeper.messages where id = $1",
				int64(k.scheduled(2).Turn.MessageID))
		}, [3]string{"red", "blue", "default"}),
		// Without a time the file has a fault, and the agent keeps its old version.
		row("cron", `"0 4 1 1 *"`, `"30 5 2 2 *"`, "time_zone: UTC", due, [3]string{"01-01 04:00", "02-02 05:30",
			"02-02 05:30"}),
		row("time_zone", "Asia/Tokyo", "Asia/Kolkata", `cron: "0 4 1 1 *"`, due, [3]string{"12-31 19:00", "12-31 22:30",
			"01-01 04:00"}),
		row("conversation", "red", "blue", often, func(k talk) string {
			return k.scheduled(2).Turn.Conversation
		}, [3]string{"red", "blue", "main"}),
		row("message", `"do: say one"`, `"do: say two"`, often, func(k talk) string {
			return body(k.scheduled(2))
		}, [3]string{"one", "two", "A summary."}),
		row("history", "none", "all", often+"\n  message: \"do: say so\"", func(k talk) string {
			k.scheduled(4)
			all := k.requests(fmt.Sprintf("%q", k.agent))
			return fmt.Sprint(min(strings.Count(string(all[len(all)-1].Body), "do: say so"), 3))
		}, [3]string{"1", "3", "2"}),
		{key: "quiet_reply", values: [2]string{"all quiet", "nothing new"},
			with: "schedule:\n  cron: \"@every 1s\"\n  message: \"do: say All quiet.\"\n%s",
			see: func(k talk) string {
				return body(k.scheduled(1))
			}, want: [3]string{"no reply", "All quiet.", "All quiet."}},
	}
}

func replyRows() []agentRow {
	const firstLine = "Tool results: 1 succeeded, 0 failed."
	return []agentRow{
		{key: "on_degraded", values: [2]string{"Sorry.", "silent"}, with: "tools: [text]\nmax_rounds: 1",
			see: func(k talk) string {
				line, _, _ := strings.Cut(body(k.say(`do: text {"n":1}`)), "\n")
				return line
			}, want: [3]string{"Sorry.", "", firstLine}},
		{key: "on_failed", values: [2]string{"Broken.", "silent"}, see: func(k talk) string {
			return body(k.say("do: fail 400"))
		},
			want: [3]string{"Broken.", "",
				"This message could not be answered: the model does not take it as it is; the operator was told."}},
		{key: "summary_output", values: [2]string{"true", "false"}, with: "tools: [echo]\nmax_rounds: 1",
			see: func(k talk) string {
				return fmt.Sprint(strings.Contains(body(k.say(`do: echo {"text":"the result"}`)), "the result"))
			}, want: [3]string{"true", "false", "false"}},
	}
}

func toolRows(w *settingsWorld) []agentRow {
	folder := func(name string) string { return fmt.Sprintf("%q", filepath.Join(w.folder, name)) }
	first := func(script string) func(k talk) string {
		return func(k talk) string { return strings.Join(shown(k.say(script)), "; ") }
	}
	const both = `do: box__left {} & box__right {} | say so`
	return []agentRow{
		{key: "tools", values: [2]string{"[text]", "[echo]"},
			see: first(`do: text {"n":2} & echo {"text":"yes"} | say so`),
			want: [3]string{"xx; tool not found: echo", "tool not found: text; yes",
				"tool not found: text; tool not found: echo"}},
		{key: "mcp_servers", values: [2]string{"{box: [left]}", "{box: [right]}"}, see: first(both), want: [3]string{
			"left was called; tool not found: box__right", "tool not found: box__left; right was called",
			"tool not found: box__left; tool not found: box__right"}},
		{key: "root", values: [2]string{folder("first"), folder("second")}, with: "tools: [read_file]",
			see: first(`do: read_file {"path":"name.txt"} | say so`),
			want: [3]string{"in first", "in second",
				"tool error: this agent has no root folder; set `root:` in its file"}},
		{key: "allow_private_hosts", values: [2]string{"[127.0.0.1]", "[10.0.0.1]"}, with: "tools: [http_get]",
			see: func(k talk) string {
				return fmt.Sprint(strings.Contains(
					shown(k.say(fmt.Sprintf(`do: http_get {"url":%q} | say so`, w.site)))[0],
					"the site"))
			}, want: [3]string{"true", "false", "false"}},
	}
}

// member returns a member of a turn's newest request.
func (k talk) member(name string) string {
	all := k.requests(fmt.Sprintf("%q", k.agent))
	if len(all) == 0 {
		return "no request"
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(all[len(all)-1].Body, &members); err != nil {
		return err.Error()
	}
	return string(members[name])
}

func requestRows() []agentRow {
	member := func(name string) func(k talk) string {
		return func(k talk) string {
			k.say("do: say so")
			return k.member(name)
		}
	}
	return []agentRow{
		{key: "max_output_tokens", values: [2]string{"100", "200"}, with: "model: played/%a", see: member("max_tokens"),
			want: [3]string{"100", "200", ""}},
		{key: "temperature", values: [2]string{"0.5", "1.5"}, with: "model: played/%a", see: member("temperature"),
			want: [3]string{"0.5", "1.5", ""}},
		{key: "context_window", values: [2]string{"2048", "8192"}, with: "max_output_tokens: 100",
			see: func(k talk) string {
				return ending(k.say("do: say so " + strings.Repeat("word ", 1600)))
			}, want: [3]string{"failed, inference_error, 0 rounds", "succeeded, none, 1 rounds",
				"succeeded, none, 1 rounds"}},
		{key: "summarise", values: [2]string{"false", "true"}, with: "context_window: 5000\nmax_output_tokens: 500",
			see: func(k talk) string {
				for range 7 {
					k.say("do: say so " + strings.Repeat("word ", 300))
				}
				return fmt.Sprint(storagetest.One[bool](k.db,
					"select exists (select from turnkeeper.summaries where agent = $1 and conversation = $2)",
					k.agent, k.name))
			}, want: [3]string{"false", "true", "true"}},
	}
}
