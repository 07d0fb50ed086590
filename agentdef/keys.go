package agentdef

import (
	"slices"
	"strings"
	"time"

	"turnkeeper/internal/config/strictyaml"
)

// A Key is one key of an agent's front matter, for the reference of settings.
type Key struct {
	Name    string // "max_rounds"; "budget.turn_tokens" within a mapping
	Type    string // "text", "duration", "list of text", ...
	Bounds  string // what is accepted
	Default string // what its absence means
	Doc     string // what it does, with the meaning of 0
}

// key is a Key with the way to read it. Keys within a mapping have no read of
// their own.
type key struct {
	Key
	read func(r *reader, name string, value *strictyaml.Node)
}

// Limits that a front matter's values keep.
const (
	maxCount    = 1_000_000
	maxTokens   = 100_000_000
	maxSpend    = 1_000_000_000_000
	maxDuration = 24 * time.Hour
	maxWindow   = 720 * time.Hour
)

// table is a function because its readers look keys up in it.
func table() []key { //nolint:funlen // one entry a key
	return []key{
		{Key{"description", "text", "", "empty", "What the agent is for, in a sentence; shown in lists."},
			text(func(d *Definition) *string { return &d.Description })},
		{Key{"model", "text", "PROVIDER/MODEL", "the setting `default_model`", "The model that the agent asks first."},
			func(r *reader, name string, v *strictyaml.Node) { r.def.Model = r.model(name, v) }},
		{Key{"fallback_models", "list of text", "each PROVIDER/MODEL, no model twice", "none", "Models asked in this order when the first one fails."},
			(*reader).fallbackModels},
		{Key{"extraction_model", "text", "PROVIDER/MODEL", "the setting `extraction_model`, else `model` and its fallbacks", "The model that searches stored tool results, in mode extract of `get_tool_output`."},
			func(r *reader, name string, v *strictyaml.Node) { r.def.ExtractionModel = r.model(name, v) }},
		{Key{"schedule", "mapping, or a list of them", "keys `schedule.*`", "none", "When the agent runs by itself. Times missed while nothing ran, and times that come while a run of the schedule waits in the inbox, are caught up by one run."},
			(*reader).schedules},
		{Key{"schedule.name", "text", "unique in the agent; 1 to 64 of a-z A-Z 0-9 . _ -", "default", "Tells several schedules of an agent apart."}, nil},
		{Key{"schedule.cron", "text", "five fields (minute hour day month weekday), or @hourly, @daily, @weekly, @monthly, @yearly, @every DURATION (1s or more)", "must be given", "When it is due."}, nil},
		{Key{"schedule.time_zone", "text", "an IANA name such as Europe/Berlin", "UTC", "The time zone that `cron` is read in. A job that names its hours runs once on each day, also when clocks change: at the first of two equal times, and at the change where its time is left out."}, nil},
		{Key{"schedule.conversation", "text", "1 to 200 bytes on one line", "main", "The conversation that its turns continue."}, nil},
		{Key{"schedule.message", "text", "not empty", "Scheduled run of NAME.", "What the agent is told."}, nil},
		{Key{"schedule.history", "text", "none, last or all", "last", "What a run is told of its conversation. none: nothing. last: the run of this schedule before it: its message, the calls of it that had an effect, and its reply. all: the whole conversation, as far as it fits; each run then makes the next one larger."}, nil},
		{Key{"quiet_reply", "text", "1 to 200 characters on one line, with a letter or digit", "none: every answer is sent", "What the model answers in a turn of a schedule when it has nothing to tell. The turn then succeeds without a reply. Letter case and marks around it do not count. The model is not told: say it in the prompt."},
			(*reader).quietReply},
		{Key{"on_degraded", "text", "summary, silent, or a text of 1 to 2000 characters", "summary", "What a degraded turn replies where the model gave no answer after its last tool call. summary: the outcome of each call. silent: the outbox has the outcome and the calls, and no text. Anything else is the reply, word for word."},
			(*reader).onDegraded},
		{Key{"on_failed", "text", "silent, or a text of 1 to 2000 characters", "a sentence that says what to do", "What a failed turn replies. silent: the outbox has the outcome, and no text. Anything else is the reply, word for word."},
			(*reader).onFailed},
		{Key{"summary_output", "true or false", "", "false", "Whether a summary shows the beginning of what each tool returned. It goes to whoever sent the message."},
			(*reader).summaryOutput},
		{Key{"lane", "text", "agent or conversation", "agent", "What runs one turn at a time: the whole agent, or each of its conversations. Where it is changed, messages that wait move to their new lanes, and wait there for turns that are open in the old ones."},
			(*reader).lane},
		{Key{"tools", "list of text", "names of tools, none twice", "none", "The tools the agent may call. It has no others."},
			(*reader).tools},
		{Key{"sub_agents", "list of text", "names of other agents, none twice", "none", "The agents that this one may give work to, with the tool `spawn_agent`, which it then has. It may spawn no others."},
			(*reader).subAgents},
		{Key{"max_sub_agents", "whole number", "0 to 1000", "the setting `max_sub_agents`", "Sub-agents that one turn may spawn. 0: none."},
			wholeP(func(d *Definition) **int { return &d.MaxSubAgents }, 0, 1000)},
		{Key{"max_sub_agent_depth", "whole number", "0 to 20", "the setting `max_sub_agent_depth`", "How deep the tree below this agent may grow, where it is the first. 0: no sub-agents."},
			wholeP(func(d *Definition) **int { return &d.MaxSubAgentDepth }, 0, 20)},
		{Key{"max_tree_sub_agents", "whole number", "0 to 10000", "the setting `max_tree_sub_agents`", "Sub-agents of the whole tree below this agent, where it is the first. 0: none."},
			wholeP(func(d *Definition) **int { return &d.MaxTreeSubAgents }, 0, 10_000)},
		{Key{"sub_agent_timeout", "duration", "1s to 24h", "the setting `sub_agent_timeout`", "How long the reply of a sub-agent is waited for."},
			durationP(func(d *Definition) **time.Duration { return &d.SubAgentTimeout }, time.Second, maxDuration)},
		{Key{"mcp_servers", "mapping", "names of servers in the settings' `mcp_servers`, each with a list of its tools", "none", "The tools of MCP servers that the agent may call, by the servers' own names. It has no others of them."},
			(*reader).mcpServers},
		{Key{"root", "text", "a path; a relative one starts at the folder that holds the agents folder", "none: the file tools refuse", "The folder that the file tools are confined to."},
			(*reader).root},
		{Key{"allow_private_hosts", "list of text", "host names or IP addresses, none twice, without scheme, port or path", "none", "Hosts that `http_get` may reach although they have private addresses. The worker's own ports stay refused."},
			(*reader).privateHosts},
		{Key{"max_rounds", "whole number", "1 to 20", "the setting `max_rounds`", "Model calls in a turn, the first included."},
			wholeP(func(d *Definition) **int { return &d.MaxRounds }, 1, 20)},
		{Key{"max_duration", "duration", "1ms to 24h, and with the lease margin less than the lease", "the setting `max_duration`", "Wall time of a turn."},
			durationP(func(d *Definition) **time.Duration { return &d.MaxDuration }, time.Millisecond, maxDuration)},
		{Key{"give_up_after", "duration", "0 to 720h", "the setting `give_up_after`", "How long a message waits for a model that cannot be reached, from its acceptance; then it fails with a reply. 0: it fails at once."},
			durationP(func(d *Definition) **time.Duration { return &d.GiveUpAfter }, 0, maxWindow)},
		{Key{"max_tool_calls", "whole number", "0 to 1000", "the setting `max_tool_calls`", "Tool calls run in a turn. 0: none."},
			wholeP(func(d *Definition) **int { return &d.MaxToolCalls }, 0, 1000)},
		{Key{"tool_timeout", "duration", "1ms to 24h", "the setting `tool_timeout`", "Time for one tool call."},
			durationP(func(d *Definition) **time.Duration { return &d.ToolTimeout }, time.Millisecond, maxDuration)},
		{Key{"continuation", "true or false", "", "the setting `continuation`", "false: one round, its tools run, and the turn ends."},
			boolP(func(d *Definition) **bool { return &d.Continuation })},
		{Key{"max_tool_result_chars", "whole number", "1 to 1000000 characters", "the setting `max_tool_result_chars`", "How much of a tool's result the model is shown at once."},
			wholeP(func(d *Definition) **int { return &d.MaxToolResultChars }, 1, maxCount)},
		{Key{"paging", "true or false", "", "the setting `paging`", "Whether the model can read on where a tool's result was cut."},
			boolP(func(d *Definition) **bool { return &d.Paging })},
		{Key{"async", "true or false", "", "the setting `async`", "Whether very long results are given as handles, and slow calls go on in the background."},
			boolP(func(d *Definition) **bool { return &d.Async })},
		{Key{"async_token_threshold", "whole number", "0 to 1000000 tokens", "the setting `async_token_threshold`", "Estimated tokens above which a result is given as a handle only. 0: every result that is not empty."},
			wholeP(func(d *Definition) **int { return &d.AsyncTokenThreshold }, 0, maxCount)},
		{Key{"async_timeout", "duration", "0 to 24h", "the setting `async_timeout`", "After how long a call that still runs goes to the background. 0: none does."},
			durationP(func(d *Definition) **time.Duration { return &d.AsyncTimeout }, 0, maxDuration)},
		{Key{"output_handles", "true or false", "", "the setting `output_handles`", "Whether a tool's string argument may be `output:ID` or `output:ID[START:END]`, for which the tool gets the text of that result of the turn."},
			boolP(func(d *Definition) **bool { return &d.OutputHandles })},
		{Key{"summarise", "true or false", "", "the setting `summarise`", "Whether earlier turns that do not fit the context window are summarised, by a model call."},
			boolP(func(d *Definition) **bool { return &d.Summarise })},
		{Key{"freshness_window", "duration", "0 to 720h", "the setting `freshness_window`", "In turns of a schedule, a call of a tool with an effect is not run where an equal one succeeded this recently. 0: off."},
			durationP(func(d *Definition) **time.Duration { return &d.FreshnessWindow }, 0, maxWindow)},
		{Key{"max_output_tokens", "whole number", "0 to 1000000 tokens", "4096", "Tokens reserved for each answer of the model. 0: the default."},
			whole(func(d *Definition) *int { return &d.MaxOutputTokens }, 0, maxCount)},
		{Key{"context_window", "whole number", "0, or 1024 to 100000000 tokens", "that of `models`, else what the server tells or the table of known models has, else 32768; 4096 with the profile ollama", "Tokens that the model takes, question and answer together. 0: the default."},
			(*reader).contextWindow},
		{Key{"temperature", "number", "0 to 2", "the provider's", "How freely the model chooses its words."},
			(*reader).temperature},
		{Key{"budget", "mapping", "keys `budget.*`", "no bounds", "What the agent's model calls may take."},
			(*reader).budget},
		{Key{"budget.turn_tokens", "whole number", "0, or more than `max_output_tokens`, to 1000000000000 tokens", "0", "Tokens of one turn. 0: no bound."}, nil},
		{Key{"budget.turn_calls", "whole number", "0 to 1000000000000 calls", "0", "Model calls of one turn, retries included. 0: no bound."}, nil},
		{Key{"budget.day_tokens", "whole number", "0, or more than `max_output_tokens`, to 1000000000000 tokens", "0", "Tokens of one day (UTC). A turn waits for the next day where that is used up; where one call would take more than a whole day's it ends degraded. 0: no bound."}, nil},
		{Key{"budget.day_calls", "whole number", "0 to 1000000000000 calls", "0", "Model calls of one day (UTC), retries included. 0: no bound."}, nil},
		{Key{"budget.tree_tokens", "whole number", "0, or more than `max_output_tokens`, to 1000000000000 tokens", "0", "Tokens of a turn of this agent and of all sub-agents below it, where it is the first. 0: no bound."}, nil},
		{Key{"budget.tree_calls", "whole number", "0 to 1000000000000 calls", "0", "Model calls of a turn of this agent and of all sub-agents below it, where it is the first. 0: no bound."}, nil},
	}
}

// Keys lists every key of the front matter in the order of the reference.
func Keys() []Key {
	var list []Key
	for _, k := range table() {
		list = append(list, k.Key)
	}
	return list
}

// names lists the keys of one mapping: "" is the front matter itself, and
// "budget." the mapping budget.
func names(where string) []string {
	var list []string
	for _, k := range table() {
		name, ok := strings.CutPrefix(k.Name, where)
		if ok && !strings.Contains(name, ".") {
			list = append(list, name)
		}
	}
	return list
}

// readerOf finds the way to read a key of the front matter.
func readerOf(name string) func(*reader, string, *strictyaml.Node) {
	all := table()
	return all[slices.IndexFunc(all, func(k key) bool { return k.Name == name })].read
}
