package agentdef_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/bounds"
)

const whole = `---
description: Reads the mail.
model: openai/gpt-5-mini
fallback_models: [openrouter/some/model, demo/script]
schedule:
  - cron: "*/5 8-18 * * 1-5"
    time_zone: Europe/Berlin
  - name: nightly
    cron: "@daily"
    conversation: night
    message: Clean up.
    history: all
quiet_reply: Nothing new.
on_degraded: silent
on_failed: Please call us.
summary_output: true
lane: conversation
notes: agent
extraction_model: openai/gpt-5-nano
tools:
  - clock
  - read_file
sub_agents: [critic, scribe-2]
max_sub_agents: 4
max_sub_agent_depth: 2
max_tree_sub_agents: 0
sub_agent_timeout: 5m
give_up_after: 2h
max_running: 6
mcp_servers:
  files: [read_text_file, write.file]
  browser: [browser_navigate]
root: files
allow_private_hosts: [Intranet.local, "10.0.0.7", "::1"]
max_rounds: 20
max_duration: 2m
max_tool_calls: 0
tool_timeout: 30
continuation: false
paging: false
async: false
async_token_threshold: 5000
async_timeout: 3s
output_handles: true
summarise: false
max_tool_result_chars: 4000
freshness_window: 0
max_output_tokens: 1000
context_window: 128000
temperature: 0.5
budget: {turn_tokens: 1, turn_calls: 2, day_tokens: 3, day_calls: 4, tree_tokens: 5, tree_calls: 6, on_limit: ask}
levels: {low: {model: a/cheap, schedules: true}, critical: {model: a/free, schedules: false, min_priority: -5}}
approve: {"*": always, read_file: never, pay: "args.amount > 5 ? ask : allow"}
while_asking: go_on
durability: step
reply_sink: ask
ask_timeout: 2h
ask_audience: [ann, bob]
on_unknown: ask
inbox_labels: [untrusted, private]
---

You are kind.

---
Below a rule.
`

func TestParseReadsEveryKey(t *testing.T) {
	got, err := agentdef.Parse("/srv/agents/mail.md", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := &agentdef.Definition{
		Name: "mail", Path: "/srv/agents/mail.md", Source: []byte(whole),
		Prompt:      "You are kind.\n\n---\nBelow a rule.",
		Description: "Reads the mail.",
		QuietReply:  "Nothing new.", Replies: agentdef.Replies{OnDegraded: "silent", OnFailed: "Please call us.",
			SummaryOutput: true},
		Model:          "openai/gpt-5-mini",
		FallbackModels: []string{"openrouter/some/model", "demo/script"},
		Schedules: []agentdef.Schedule{
			{Name: "default", Cron: "*/5 8-18 * * 1-5", TimeZone: "Europe/Berlin", Conversation: "main",
				Message: "Scheduled run of mail.", History: agentdef.HistoryLast},
			{Name: "nightly", Cron: "@daily", TimeZone: "UTC", Conversation: "night", Message: "Clean up.",
				History: agentdef.HistoryAll},
		},
		ExtractionModel:     "openai/gpt-5-nano",
		LanePerConversation: true,
		SharedNotes:         true,
		Tools:               []string{"clock", "read_file"},
		SubAgents:           []string{"critic", "scribe-2"},
		MaxRunning:          6,
		Root:                "/srv/files",
		AllowPrivateHosts:   []string{"intranet.local", "10.0.0.7", "::1"},
		Overrides: bounds.Overrides{
			"max_sub_agents": 4, "max_sub_agent_depth": 2, "max_tree_sub_agents": 0,
			"sub_agent_timeout": 5 * time.Minute, "give_up_after": 2 * time.Hour, "max_rounds": 20,
			"max_duration": 2 * time.Minute, "max_tool_calls": 0, "tool_timeout": 30 * time.Second,
			"continuation": false, "summarise": false, "max_tool_result_chars": 4000, "paging": false,
			"async": false, "async_token_threshold": 5000, "async_timeout": 3 * time.Second,
			"output_handles": true, "freshness_window": time.Duration(0),
		},
		MCPServers: []agentdef.MCPServer{
			{Name: "files", Tools: []string{"read_text_file", "write.file"}},
			{Name: "browser", Tools: []string{"browser_navigate"}},
		},
		MaxOutputTokens: 1000,
		ContextWindow:   128000,
		Temperature:     new(0.5),
		Budget: agentdef.Budget{TurnTokens: 1, TurnCalls: 2, DayTokens: 3, DayCalls: 4, TreeTokens: 5,
			TreeCalls: 6, OnLimit: "ask"},
		Levels: agentdef.Levels{
			Low:      agentdef.LevelEffect{Model: "a/cheap", Schedules: new(true)},
			Critical: agentdef.LevelEffect{Model: "a/free", Schedules: new(false), MinPriority: new(-5)},
		},
		Approve:    map[string]string{"*": "always", "read_file": "never", "pay": "args.amount > 5 ? ask : allow"},
		Durability: "step", WhileAsking: "go_on",
		AskTimeout: 2 * time.Hour, Audience: []string{"ann", "bob"}, OnUnknown: "ask",
		ReplySink: "ask", InboxLabels: []string{"untrusted", "private"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(agentdef.Definition{}, "Hash")); diff != "" {
		t.Error(diff)
	}
	if len(got.Hash) != 64 {
		t.Errorf("Hash = %q", got.Hash)
	}
}

func TestParseAccepts(t *testing.T) {
	for name, source := range map[string]string{
		"no settings":             "---\n---\nHello.",
		"only comments":           "---\n# nothing\n---\nHello.",
		"byte order mark":         "\ufeff---\nlane: agent\n---\nHello.",
		"CRLF":                    "---\r\nlane: agent\r\n---\r\nHello.\r\n",
		"spaces after the dashes": "--- \nlane: agent\n---\t\nHello.",
	} {
		t.Run(name, func(t *testing.T) {
			def, err := agentdef.Parse("agents/a.md", []byte(source))
			if err != nil {
				t.Fatal(err)
			}
			if def.Prompt != "Hello." || def.Model != "" || def.LanePerConversation {
				t.Errorf("got %+v", def)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		front string // front matter of a file with a valid prompt; line 1 is ---
		want  string
	}{
		{"unknown key", "# mail\nmodle: a/b", `:3: unknown key "modle" (did you mean "model"?)`},
		{"unknown key, nothing near", "colour: red", `:2: unknown key "colour"`},
		{"misspelt in a mapping", "budget:\n  turn_token: 5",
			`:3: unknown key "budget.turn_token" (did you mean "turn_tokens"?)`},
		{"repeated key", "model: a/b\nlane: agent\nmodel: a/c", `:4: key "model" is already set on line 2`},
		{"repeated in a mapping", "budget: {day_calls: 1, day_calls: 2}",
			`:2: key "budget.day_calls" is already set on line 2`},
		{"no value", "model:\nlane: agent", `:2: key "model" has no value: set it or remove the line`},
		{"not a mapping", "- model", ":2: the settings must be a mapping of keys to values, not a list"},
		{"number for text", "description: 5", ":2: description must be text, not a number: put it in quotes"},
		{"text for number", "max_rounds: three", ":2: max_rounds must be a whole number, not text"},
		{"quoted number", `max_rounds: "3"`, ":2: max_rounds must be a whole number, not text"},
		{"fraction", "max_rounds: 2.5", ":2: max_rounds must be a whole number such as 12"},
		{"octal", "max_rounds: 010", ":2: max_rounds must be a whole number such as 12"},
		{"too many rounds", "max_rounds: 40", ":2: max_rounds is 40: it must be 1 to 20"},
		{"no rounds", "max_rounds: 0", ":2: max_rounds is 0: it must be 1 to 20"},
		{"endless number", "context_window: 9999999999999999999", ":2: context_window is too large"},
		{"yes", "continuation: yes", ":2: continuation must be true or false, not text"},
		{"bad duration", "max_duration: 90 seconds",
			":2: max_duration must be a duration such as 90s, 2m or 1h30m (a bare number is seconds)"},
		{"no duration", "max_duration: 0", ":2: max_duration is 0: it must be 1ms to 24h"},
		{"negative duration", "freshness_window: -1s", ":2: freshness_window is -1s: it must be 0 to 720h"},
		{"bad model", "model: gpt-5", `:2: model is "gpt-5": it must be PROVIDER/MODEL, such as openai/gpt-5-mini`},
		{"fallback twice", "fallback_models:\n- a/b\n- a/b", `:4: fallback_models has "a/b" twice`},
		{"tools as text", "tools: clock", ":2: tools must be a list such as [one, two], not text"},
		{"tool as number", "tools: [clock, 5]",
			":2: tools must be a list of texts: item 2 must be text, not a number: put it in quotes"},
		{"tool twice", "tools: [clock, clock]", `:2: tools has "clock" twice`},
		{"bad tool", "tools: [\"a b\"]", `:2: tools holds "a b": a tool's name is 1 to 64 of a-z A-Z 0-9 _ -`},
		{"itself below", "sub_agents: [y, x]", `:2: sub_agents holds "x": an agent cannot be its own sub-agent`},
		{"bad sub-agent", "sub_agents: [No]",
			`:2: sub_agents: agent name "No": use at most 63 of a-z, 0-9, _ and -, starting with a letter or digit`},
		{"sub-agent twice", "sub_agents: [y, y]", `:2: sub_agents has "y" twice`},
		{"bad lane", "lane: both", `:2: lane is "both": it must be one of agent, conversation`},
		{"bad host", "allow_private_hosts: [\"http://x\"]",
			`:2: allow_private_hosts holds "http://x": it must be a host name or an IP address, without scheme, port or path`},
		{"empty root", "root: ''", ":2: root must be the path of a folder"},
		{"hot", "temperature: 2.5", ":2: temperature is 2.5: it must be 0 to 2"},
		{"unknown level", "levels:\n  lower: {}", `:3: unknown key "levels.lower"`},
		{"unknown effect", "levels:\n  low:\n    modle: a/b",
			`:4: unknown key "levels.low.modle" (did you mean "model"?)`},
		{"bad model of a level", "levels:\n  low: {model: cheap}",
			`:3: levels.low.model is "cheap": it must be PROVIDER/MODEL, such as openai/gpt-5-mini`},
		{"bad priority of a level", "levels:\n  critical:\n    min_priority: 1001",
			":4: levels.critical.min_priority is 1001: it must be -1000 to 1000"},
		{"bad schedules of a level", "levels: {low: {schedules: off}}",
			":2: levels.low.schedules must be true or false, not text"},
		{"negative budget", "budget:\n  day_tokens: -1", ":3: budget.day_tokens is -1: it must be 0 to 1000000000000"},
		{"answer fills the window", "context_window: 2000\nmax_output_tokens: 2000",
			":3: max_output_tokens is 2000: it must be less than the context_window of 2000"},
		{"bad cron", "schedule:\n  cron: every day",
			`:3: schedule.cron is "every day": it must be five fields such as 0 9 * * 1-5, or @hourly, @daily, @every 10m (expected exactly 5 fields, found 2: [every day])`},
		{"cron with zone", "schedule: {cron: \"TZ=UTC\"}",
			`:2: schedule.cron is "TZ=UTC": set the time zone with the key time_zone`},
		{"conversation too long", "schedule: {cron: \"@daily\", conversation: " + strings.Repeat("ж", 101) + "}",
			`:2: schedule.conversation is "` + strings.Repeat("ж", 101) + `": it must be 1 to 200 bytes on one line`},
		{"cron never", "schedule: {cron: 0 0 30 2 *}",
			`:2: schedule.cron is "0 0 30 2 *": there is no such day within five years`},
		{"cron too often", "schedule: {cron: \"@every 10ms\"}",
			`:2: schedule.cron is "@every 10ms": it must be @every with a duration of 1s or more, such as @every 90s`},
		{"cron by no duration", "schedule: {cron: \"@every day\"}",
			`:2: schedule.cron is "@every day": it must be @every with a duration of 1s or more, such as @every 90s`},
		{"cron as list", "schedule: {cron: [1]}", ":2: schedule.cron must be text, not a list"},
		{"name as list, no cron", "schedule: {name: [x]}",
			":2: schedule.name must be text, not a list\nagents/x.md:2: schedule.cron is missing: say when the agent runs, such as cron: \"0 9 * * *\""},
		{"message as list", "schedule: {cron: \"@daily\", message: [x]}",
			":2: schedule.message must be text, not a list"},
		{"bad name of a schedule", "schedule: {cron: \"@daily\", name: \"a b\"}",
			`:2: schedule.name is "a b": it must be 1 to 64 of a-z A-Z 0-9 . _ -`},
		{"empty zone", "schedule: {cron: \"@daily\", time_zone: \"\"}",
			`:2: schedule.time_zone is "": it must be an IANA time zone such as UTC or Europe/Berlin`},
		{"empty message", "schedule: {cron: \"@daily\", message: \" \"}",
			`:2: schedule.message is " ": it must not be empty`},
		{"empty conversation", "schedule: {cron: \"@daily\", conversation: \" \"}",
			`:2: schedule.conversation is " ": it must be 1 to 200 bytes on one line`},
		{"conversation on two lines", "schedule: {cron: \"@daily\", conversation: \"a\\nb\"}",
			":2: schedule.conversation is \"a\\nb\": it must be 1 to 200 bytes on one line"},
		{"no cron", "schedule: {name: x}",
			`:2: schedule.cron is missing: say when the agent runs, such as cron: "0 9 * * *"`},
		{"bad zone", "schedule: {cron: \"@daily\", time_zone: Mars/Base}",
			`:2: schedule.time_zone is "Mars/Base": it must be an IANA time zone such as UTC or Europe/Berlin`},
		{"zone of the machine", "schedule: {cron: \"@daily\", time_zone: Local}",
			`:2: schedule.time_zone is "Local": it must be an IANA time zone such as UTC or Europe/Berlin`},
		{"schedules of one name", "schedule:\n- cron: \"@daily\"\n- cron: \"@hourly\"",
			`:4: two schedules have the name "default": give each its own name`},
		{"schedule as text", "schedule: daily", ":2: schedule must be a mapping of keys to values, not text"},
		{"anchor", "model: &m a/b",
			":2: YAML anchors, aliases, tags and directives are not supported: put text that begins with * & ! or % in quotes"},
		{"unquoted star", "schedule:\n  cron: */5 * * * *",
			":3: invalid YAML: value is not allowed in this context. map key-value is pre-defined; put text that has ': ' or begins with * & ! % @ in quotes"},
		{"NUL by escape", `description: "a\0b"`, ":2: description must be valid UTF-8 text without NUL"},
		{"too deep", "tools: " + strings.Repeat("[", 5000), ":2: the settings are nested too deeply"},
		{"too many lines", strings.Repeat("#\n", 3000), ":2: the settings are larger than 64 KiB or 2000 lines"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := agentdef.Parse("agents/x.md", []byte("---\n"+c.front+"\n---\nHello."))
			if got, want := text(err), "agents/x.md"+c.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestParseRefusesFiles(t *testing.T) {
	for _, c := range []struct{ name, path, source, want string }{
		{"no front matter", "a.md", "Hello.",
			"a.md:1: the file must begin with a line ---, the settings, and another line ---"},
		{"empty", "a.md", "", "a.md:1: the file must begin with a line ---, the settings, and another line ---"},
		{"no end", "a.md", "---\nlane: agent\nHello.",
			"a.md:1: the settings have no end: put a line --- between them and the system prompt"},
		{"empty prompt", "a.md", "---\nlane: agent\n---\n \n",
			"a.md:3: the system prompt is empty: write it below this line"},
		{"empty prompt without line end", "a.md", "---\n---",
			"a.md:2: the system prompt is empty: write it below this line"},
		{"not UTF-8", "a.md", "---\n---\nHi\nGr\xfc\xdfe",
			"a.md:4: this line is not UTF-8 text: save the file as UTF-8"},
		{"NUL", "a.md", "---\n---\nHi\x00", "a.md:3: this line contains a NUL byte: remove it"},
		{"too large", "a.md", "---\n---\n" + strings.Repeat("x", 1<<20),
			"a.md: the file has 1048584 bytes: at most 1048576 are allowed"},
		{"bad name", "a b.md", "---\n---\nHi",
			"a b.md: the file's name must be the agent's name and .md: agent name \"a b\": use at most 63 of a-z, 0-9, _ and -, starting with a letter or digit"},
		{"all faults at once", "a.md", "---\nlane: x\nmodle: y\nmax_rounds: 0\n---\n",
			"a.md:2: lane is \"x\": it must be one of agent, conversation\n" +
				"a.md:3: unknown key \"modle\" (did you mean \"model\"?)\na.md:4: max_rounds is 0: it must be 1 to 20\na.md:5: the system prompt is empty: write it below this line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			def, err := agentdef.Parse(c.path, []byte(c.source))
			if def != nil {
				t.Error("a definition came with the error")
			}
			if got := text(err); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestParseRecordedEqualsTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	filed, err := agentdef.Parse("agents/mail.md", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := agentdef.ParseRecorded("mail", filed.Source)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filed, recorded, cmpopts.IgnoreFields(agentdef.Definition{}, "Path")); diff != "" {
		t.Error(diff)
	}
	longest := "---\nschedule: {cron: \"@every 1s\", conversation: " + strings.Repeat("ж", 100) + "}\n---\nHi"
	if _, err = agentdef.Parse("agents/mail.md", []byte(longest)); err != nil {
		t.Errorf("a name of 200 bytes, each second: %v", err)
	}
	_, err = agentdef.ParseRecorded("mail", []byte("---\nof_tomorrow: {}\n---\nHi"))
	if got, want := text(err), `mail.md (as recorded):2: unknown key "of_tomorrow"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckNamesTheFileAndBothNumbers(t *testing.T) {
	def, err := agentdef.Parse("agents/slow.md", []byte("---\nmax_duration: 300s\n---\nHi"))
	if err != nil {
		t.Fatal(err)
	}
	got := text(def.Check(bounds.Default()))
	if want :=
		"agents/slow.md: max_duration 5m0s plus the lease margin 30s must be less than the lease of 4m0s"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q", got)
	}
	roomy := bounds.Default()
	roomy.LeaseTTL = time.Hour
	if err := def.Check(roomy); err != nil {
		t.Error(err)
	}
}

// A budget that the reserve for one answer uses up allows no call.
func TestCheckOfABudgetThatCanRunNothing(t *testing.T) {
	for _, c := range []struct{ front, want string }{
		{"budget: {turn_tokens: 4096}",
			"agents/x.md: budget.turn_tokens is 4096: it must be more than the 4096 tokens reserved for each answer (max_output_tokens), or no turn can run"},
		{"budget: {turn_tokens: 4097, day_tokens: 5000}", ""},
		{"budget: {tree_tokens: 4096}",
			"agents/x.md: budget.tree_tokens is 4096: it must be more than the 4096 tokens reserved for each answer (max_output_tokens), or no turn can run"},
		{"budget: {turn_calls: 1, day_calls: 1, tree_calls: 1, tree_tokens: 4097}", ""},
		{"max_output_tokens: 100\nbudget: {day_tokens: 101}", ""},
		{"max_output_tokens: 500\nbudget: {day_tokens: 500, turn_tokens: 20}",
			"agents/x.md: budget.turn_tokens is 20: it must be more than the 500 tokens reserved for each answer (max_output_tokens), or no turn can run\n" +
				"agents/x.md: budget.day_tokens is 500: it must be more than the 500 tokens reserved for each answer (max_output_tokens), or no turn can run"},
	} {
		def, err := agentdef.Parse("agents/x.md", []byte("---\n"+c.front+"\n---\nHi"))
		if err != nil {
			t.Fatal(err)
		}
		if got := text(def.Check(bounds.Default())); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.front, got, c.want)
		}
	}
}

func TestKeysAreAllAccepted(t *testing.T) {
	for _, key := range agentdef.Keys() {
		top, _, nested := strings.Cut(key.Name, ".")
		if key.Doc == "" || key.Type == "" || key.Default == "" {
			t.Errorf("%s is not documented: %+v", key.Name, key)
		}
		if nested {
			continue
		}
		if !strings.Contains(whole, "\n"+top+":") {
			t.Errorf("%s is not in the file with every key", top)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("---\nschedule: {cron: \"TZ=0\"}\n---\nx"))
	f.Add([]byte("---\na: [\n---\nx"))
	f.Add([]byte("---\n? a\n: &b\n---\nx"))
	f.Fuzz(func(t *testing.T, source []byte) {
		first, err := agentdef.Parse("/agents/a.md", source)
		if err != nil {
			if first != nil || err.Error() == "" {
				t.Fatalf("error %v with %v", err, first)
			}
			return
		}
		second, err := agentdef.Parse("/agents/a.md", first.Source)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatal(diff)
		}
		if first.Prompt == "" || first.Hash == "" {
			t.Fatalf("accepted without prompt or hash: %+v", first)
		}
	})
}

// Tags of fields cannot be made from constants.
func TestRangeOfPriorities(t *testing.T) {
	t.Parallel()
	want, found := fmt.Sprintf("%d to %d", turnkeeper.MinPriority, turnkeeper.MaxPriority), 0
	for _, k := range agentdef.Keys() {
		if strings.HasSuffix(k.Name, ".min_priority") {
			found++
			if k.Bounds != want {
				t.Errorf("%s: %s, want %s", k.Name, k.Bounds, want)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d keys are priorities, want 2", found)
	}
}
