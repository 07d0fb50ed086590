package agentdef

import (
	"slices"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/config/strictyaml"
)

// A Key is one key of an agent's front matter, for the reference of settings.
type Key = strictyaml.Key

// Keys returns all keys of the front matter in the order of the reference.
func Keys() []Key {
	return strictyaml.Reference(Definition{}, keys, boundKeys(&turnkeeper.Bounds{})...)
}

// boundKey returns the row of a bound.
func boundKey(name string) [4]string {
	all := bounds.All()
	row := all[slices.IndexFunc(all, func(r bounds.Bound) bool { return r.Name == name && r.Agent })]
	accepted, doc := "", row.Doc
	if row.Unit != "" {
		accepted = " " + row.Unit
	}
	if row.Zero != "" {
		doc += " 0: " + row.Zero + "."
	}
	return [4]string{name, accepted, "the setting `" + name + "`", doc}
}

// keys are rows of strictyaml.Reference.
var keys = [][4]string{
	{"description", "", "empty", "What the agent is for, in a sentence; shown in lists."},
	{"model", "PROVIDER/MODEL", "the setting `default_model`", "The model that the agent asks first."},
	{"fallback_models", "each PROVIDER/MODEL, no model twice", "none",
		"Models asked in this order when the first one fails."},
	{"extraction_model", "PROVIDER/MODEL", "the setting `extraction_model`, else `model` and its fallbacks",
		"The model that searches stored tool results, in mode extract of `get_tool_output`."},
	{"schedule", "keys `schedule.*`", "none",
		"When the agent runs by itself. One run makes up for all times that were missed while nothing ran, or that came while a run of the schedule waited in the inbox."},
	{"schedule.name", "unique in the agent; 1 to 64 of a-z A-Z 0-9 . _ -", "default", "The name of the schedule."},
	{"schedule.cron",
		"five fields (minute hour day month weekday), or @hourly, @daily, @weekly, @monthly, @yearly, @every DURATION (1s or more)", "must be given", "When it is due. Sunday is 0 or 7. If it names days of the month and days of the week, it is due on each day that is either; `agents check` warns of it, and shows the next three times."},
	{"schedule.time_zone", "an IANA name such as Europe/Berlin", "UTC",
		"The time zone of `cron`. A schedule that names its hours runs once on each day, also when clocks change: at the first of two equal times, and at the change if its time is skipped."},
	{"schedule.conversation", "1 to 200 bytes on one line", "main", "The conversation that its turns continue."},
	{"schedule.message", "not empty", "Scheduled run of NAME.", "The message that the agent gets."},
	{"schedule.history", "", "last",
		"The part of its conversation that a run sees. none: nothing. last: the previous run of this schedule: its message, its calls with an effect, and its reply. all: as much of the conversation as fits; each run then makes the next one larger."},
	{"quiet_reply", "1 to 200 characters on one line, with a letter or digit", "none: every answer is sent",
		"The answer by which the model says, in a turn of a schedule, that it has nothing to report. The turn then succeeds without a reply. Letter case and punctuation around it are ignored. The model does not know it: name it in the prompt."},
	{"on_degraded", "summary, silent, or a text of 1 to 2000 characters", "summary",
		"The reply of a degraded turn if the model gave no answer after its last tool call. summary: the outcome of each call. silent: the outbox has the outcome and the calls, but no text. Any other text is the reply itself."},
	{"on_failed", "silent, or a text of 1 to 2000 characters", "a sentence that says what to do",
		"The reply of a failed turn. silent: the outbox has the outcome, but no text. Any other text is the reply itself."},
	{"summary_output", "", "false",
		"Whether a summary shows the beginning of each tool's result. The sender of the message sees it."},
	{"lane", "", "agent",
		"What runs one turn at a time: the whole agent, or each of its conversations. After a change, waiting messages move to their new lanes, and wait there for the open turns of the old ones, except those that wait for a person."},
	{"notes", "", "user",
		"Whose the notes of `note_write` are. user: those of the user whose conversation it is; without a user, those of the conversation. agent: the agent's, shared by all its users and conversations."},
	{"max_running", " turns", "three quarters of all slots while other agents wait",
		"Maximum number of the agent's turns that run at once, over all workers. Turns that wait for a person, a sub-agent or a detached call do not count. 0: the default."},
	{"tools", "names of tools, none twice", "none", "The tools the agent may call. It has no others."},
	{"sub_agents", "names of other agents, none twice", "none",
		"The agents that this one may give work to. It then has the tool `spawn_agent`."},
	boundKey("max_sub_agents"),
	boundKey("max_sub_agent_depth"),
	boundKey("max_tree_sub_agents"),
	boundKey("sub_agent_timeout"),
	{"mcp_servers", "names of servers in the settings' `mcp_servers`, each with a list of its tools", "none",
		"The tools of MCP servers that the agent may call, by the servers' own names for them. It has no other tools of these servers."},
	{"root", "a path; a relative one starts at the folder that holds the agents folder", "none: the file tools refuse",
		"The folder that the file tools are confined to."},
	{"allow_private_hosts", "host names or IP addresses, none twice, without scheme, port or path", "none",
		"Hosts with private addresses that `http_get` may reach. The worker's own ports stay refused."},
	boundKey("max_rounds"),
	boundKey("max_duration"),
	boundKey("give_up_after"),
	boundKey("max_tool_calls"),
	boundKey("tool_timeout"),
	boundKey("continuation"),
	boundKey("max_tool_result_chars"),
	boundKey("paging"),
	boundKey("async"),
	boundKey("async_token_threshold"),
	boundKey("async_timeout"),
	boundKey("output_handles"),
	boundKey("summarise"),
	boundKey("freshness_window"),
	{"approve", "names of tools, or \"*\" for all, each with always, never or a rule in CEL", "the tools' own",
		"The calls that a person must approve before they run. An entry for a tool replaces the tool's own rule and the entry \"*\". See docs/asks.md."},
	{"while_asking", "", "hold",
		"What happens to later messages of a conversation while its turn waits for a person. hold: they wait. go_on: they are answered. Other conversations always continue."},
	{"ask_timeout", "", "72h", "How long an ask stays open. Then it expires, which denies the call."},
	{"ask_audience", "names, none twice", "anybody who may answer asks", "Who may answer the agent's asks."},
	{"inbox_labels", "untrusted, private", "none",
		"Labels of messages to the agent, for example of mail from strangers. They do not apply to messages from other agents. See docs/asks.md."},
	{"durability", "", "barrier",
		"When answers of the model, and results of calls with effect none, are on record. barrier: at the latest before the next call with an effect, ask, wait or reply, or when the oldest answer is 20 ms old while the turn waits for a model or a tool. If the worker dies before, another one repeats the model call and the reads. step: each before the next step begins. See docs/guarantees.md."},
	{"on_unknown", "", "degrade",
		"What happens to a call of effect once of unknown outcome. degrade: the model learns it, and the turn ends degraded. ask: a person decides whether it happened; if it did not, it runs again."},
	{"reply_sink", "", "the setting `reply_sink`",
		"What happens to a reply that may hold content with the label private. allow: it is sent. withhold: the turn ends degraded, with a text that says so. ask: a person approves it first. Replies of sub-agents to other agents are not affected. See docs/asks.md."},
	{"max_output_tokens", " tokens", "4096", "Tokens reserved for each answer of the model. 0: the default."},
	{"context_window", " tokens",
		"that of `models`, else as the server reports it or the table of known models has it, else 32768; 4096 with the profile ollama", "The model's context window: request and answer together. 0: the default."},
	{"temperature", "", "the provider's", "The sampling temperature."},
	{"budget", "keys `budget.*`", "no bounds", "Limits of the agent's model calls."},
	{"budget.turn_tokens", " tokens; if not 0, more than `max_output_tokens`", "0",
		"Tokens of one turn. 0: no bound."},
	{"budget.turn_calls", " calls", "0", "Model calls of one turn, retries included. 0: no bound."},
	{"budget.day_tokens", " tokens; if not 0, more than `max_output_tokens`", "0",
		"Tokens of one day (UTC). If they are used up, a turn waits for the next day; if one call needs more than a whole day's, the turn ends degraded. 0: no bound."},
	{"budget.day_calls", " calls", "0", "Model calls of one day (UTC), retries included. 0: no bound."},
	{"budget.tree_tokens", " tokens; if not 0, more than `max_output_tokens`", "0",
		"Tokens of the tree that begins with a turn of this agent, sub-agents included. 0: no bound."},
	{"budget.on_limit", "", "end",
		"What happens to a turn whose budget is used up. end: it ends, or waits for the next day. ask: a person may extend the budget first; each approval grants the budget once more."},
	{"budget.tree_calls", " calls", "0",
		"Model calls of the tree that begins with a turn of this agent, sub-agents included. 0: no bound."},
	{"levels", "keys `levels.*`", "nothing changes",
		"What happens when little is left of `budget.day_tokens` or `budget.day_calls`. Level low begins when less than 20 % is left, and critical when less than 5 % is left; a level ends when 5 points more are left, and at the latest with the day. An operator can pin a level. See docs/levels.md."},
	{"levels.low", "keys `levels.low.*`", "nothing changes", "What happens at level low."},
	{"levels.low.model", "PROVIDER/MODEL", "`model`",
		"The model that turns ask in place of `model`; `fallback_models` stay."},
	{"levels.low.schedules", "", "true",
		"false: due times of the agent's schedules do not run, and `turnctl schedules` says so."},
	{"levels.low.min_priority", "", "none: all messages are served",
		"Messages with a lower priority wait until the level ends. Those of sub-agents, and turns that have begun, do not."},
	{"levels.critical", "keys `levels.critical.*`", "nothing changes",
		"What happens at level critical. It does not take over anything from `levels.low`."},
	{"levels.critical.model", "PROVIDER/MODEL", "`model`", "As `levels.low.model`."},
	{"levels.critical.schedules", "", "true", "As `levels.low.schedules`."},
	{"levels.critical.min_priority", "", "none: all messages are served", "As `levels.low.min_priority`."},
}
