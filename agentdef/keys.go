package agentdef

import "turnkeeper/internal/config/strictyaml"

// A Key is one key of an agent's front matter, for the reference of settings.
type Key = strictyaml.Key

// Keys lists every key of the front matter in the order of the reference.
func Keys() []Key { return strictyaml.Reference(Definition{}, keys) }

// keys are rows of strictyaml.Reference.
var keys = [][4]string{
	{"description", "", "empty", "What the agent is for, in a sentence; shown in lists."},
	{"model", "PROVIDER/MODEL", "the setting `default_model`", "The model that the agent asks first."},
	{"fallback_models", "each PROVIDER/MODEL, no model twice", "none", "Models asked in this order when the first one fails."},
	{"extraction_model", "PROVIDER/MODEL", "the setting `extraction_model`, else `model` and its fallbacks", "The model that searches stored tool results, in mode extract of `get_tool_output`."},
	{"schedule", "keys `schedule.*`", "none", "When the agent runs by itself. Times missed while nothing ran, and times that come while a run of the schedule waits in the inbox, are caught up by one run."},
	{"schedule.name", "unique in the agent; 1 to 64 of a-z A-Z 0-9 . _ -", "default", "Tells several schedules of an agent apart."},
	{"schedule.cron", "five fields (minute hour day month weekday), or @hourly, @daily, @weekly, @monthly, @yearly, @every DURATION (1s or more)", "must be given", "When it is due."},
	{"schedule.time_zone", "an IANA name such as Europe/Berlin", "UTC", "The time zone that `cron` is read in. A job that names its hours runs once on each day, also when clocks change: at the first of two equal times, and at the change where its time is left out."},
	{"schedule.conversation", "1 to 200 bytes on one line", "main", "The conversation that its turns continue."},
	{"schedule.message", "not empty", "Scheduled run of NAME.", "What the agent is told."},
	{"schedule.history", "", "last", "What a run is told of its conversation. none: nothing. last: the run of this schedule before it: its message, the calls of it that had an effect, and its reply. all: the whole conversation, as far as it fits; each run then makes the next one larger."},
	{"quiet_reply", "1 to 200 characters on one line, with a letter or digit", "none: every answer is sent", "What the model answers in a turn of a schedule when it has nothing to tell. The turn then succeeds without a reply. Letter case and marks around it do not count. The model is not told: say it in the prompt."},
	{"on_degraded", "summary, silent, or a text of 1 to 2000 characters", "summary", "What a degraded turn replies where the model gave no answer after its last tool call. summary: the outcome of each call. silent: the outbox has the outcome and the calls, and no text. Anything else is the reply, word for word."},
	{"on_failed", "silent, or a text of 1 to 2000 characters", "a sentence that says what to do", "What a failed turn replies. silent: the outbox has the outcome, and no text. Anything else is the reply, word for word."},
	{"summary_output", "", "false", "Whether a summary shows the beginning of what each tool returned. It goes to whoever sent the message."},
	{"lane", "", "agent", "What runs one turn at a time: the whole agent, or each of its conversations. Where it is changed, messages that wait move to their new lanes, and wait there for turns that are open in the old ones."},
	{"tools", "names of tools, none twice", "none", "The tools the agent may call. It has no others."},
	{"sub_agents", "names of other agents, none twice", "none", "The agents that this one may give work to, with the tool `spawn_agent`, which it then has. It may spawn no others."},
	{"max_sub_agents", "", "the setting `max_sub_agents`", "Sub-agents that one turn may spawn. 0: none."},
	{"max_sub_agent_depth", "", "the setting `max_sub_agent_depth`", "How deep the tree below this agent may grow, where it is the first. 0: no sub-agents."},
	{"max_tree_sub_agents", "", "the setting `max_tree_sub_agents`", "Sub-agents of the whole tree below this agent, where it is the first. 0: none."},
	{"sub_agent_timeout", "", "the setting `sub_agent_timeout`", "How long the reply of a sub-agent is waited for."},
	{"mcp_servers", "names of servers in the settings' `mcp_servers`, each with a list of its tools", "none", "The tools of MCP servers that the agent may call, by the servers' own names. It has no others of them."},
	{"root", "a path; a relative one starts at the folder that holds the agents folder", "none: the file tools refuse", "The folder that the file tools are confined to."},
	{"allow_private_hosts", "host names or IP addresses, none twice, without scheme, port or path", "none", "Hosts that `http_get` may reach although they have private addresses. The worker's own ports stay refused."},
	{"max_rounds", "", "the setting `max_rounds`", "Model calls in a turn, the first included."},
	{"max_duration", ", and with the lease margin less than the lease", "the setting `max_duration`", "Wall time of a turn."},
	{"give_up_after", "", "the setting `give_up_after`", "How long a message waits for a model that cannot be reached, from its acceptance; then it fails with a reply. 0: it fails at once."},
	{"max_tool_calls", "", "the setting `max_tool_calls`", "Tool calls run in a turn. 0: none."},
	{"tool_timeout", "", "the setting `tool_timeout`", "Time for one tool call."},
	{"continuation", "", "the setting `continuation`", "false: one round, its tools run, and the turn ends."},
	{"max_tool_result_chars", " characters", "the setting `max_tool_result_chars`", "How much of a tool's result the model is shown at once."},
	{"paging", "", "the setting `paging`", "Whether the model can read on where a tool's result was cut."},
	{"async", "", "the setting `async`", "Whether very long results are given as handles, and slow calls go on in the background."},
	{"async_token_threshold", " tokens", "the setting `async_token_threshold`", "Estimated tokens above which a result is given as a handle only. 0: every result that is not empty."},
	{"async_timeout", "", "the setting `async_timeout`", "After how long a call that still runs goes to the background. 0: none does."},
	{"output_handles", "", "the setting `output_handles`", "Whether a tool's string argument may be `output:ID` or `output:ID[START:END]`, for which the tool gets the text of that result of the turn."},
	{"summarise", "", "the setting `summarise`", "Whether earlier turns that do not fit the context window are summarised, by a model call."},
	{"freshness_window", "", "the setting `freshness_window`", "In turns of a schedule, a call of a tool with an effect is not run where an equal one succeeded this recently. 0: off."},
	{"max_output_tokens", " tokens", "4096", "Tokens reserved for each answer of the model. 0: the default."},
	{"context_window", " tokens", "that of `models`, else what the server tells or the table of known models has, else 32768; 4096 with the profile ollama", "Tokens that the model takes, question and answer together. 0: the default."},
	{"temperature", "", "the provider's", "How freely the model chooses its words."},
	{"budget", "keys `budget.*`", "no bounds", "What the agent's model calls may take."},
	{"budget.turn_tokens", "0, or more than `max_output_tokens`, to 1000000000000 tokens", "0", "Tokens of one turn. 0: no bound."},
	{"budget.turn_calls", " calls", "0", "Model calls of one turn, retries included. 0: no bound."},
	{"budget.day_tokens", "0, or more than `max_output_tokens`, to 1000000000000 tokens", "0", "Tokens of one day (UTC). A turn waits for the next day where that is used up; where one call would take more than a whole day's it ends degraded. 0: no bound."},
	{"budget.day_calls", " calls", "0", "Model calls of one day (UTC), retries included. 0: no bound."},
	{"budget.tree_tokens", "0, or more than `max_output_tokens`, to 1000000000000 tokens", "0", "Tokens of a turn of this agent and of all sub-agents below it, where it is the first. 0: no bound."},
	{"budget.tree_calls", " calls", "0", "Model calls of a turn of this agent and of all sub-agents below it, where it is the first. 0: no bound."},
}
