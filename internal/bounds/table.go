package bounds

import (
	"time"

	"turnkeeper"
)

// table holds a row for each field of turnkeeper.Bounds.
var table = []Bound{
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxRounds }, 3, 1, 20, Bound{
		Name: "max_rounds", Group: Turn, Unit: "model calls", Agent: true,
		Doc: "Maximum number of model calls in a turn, including the first; rounds with only paging calls " +
			"do not count."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.RoundCeiling }, 20, 1, 20, Bound{
		Name: "round_ceiling", Group: Turn, Unit: "model calls",
		Doc: "Maximum number of model calls in a turn, including paging rounds; at least max_rounds."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.MaxDuration }, 90*time.Second, moment, day, Bound{
		Name: "max_duration", Group: Turn, Agent: true,
		Doc: "Maximum wall time of a turn; with lease_margin it must be less than lease_ttl."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxToolCalls }, 12, 0, 1000, Bound{
		Name: "max_tool_calls", Group: Turn, Unit: "calls", Zero: "no tool runs", Agent: true,
		Doc: "Maximum number of tool calls in a turn, not counting paging calls."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxPagingCalls }, 64, 0, 1000, Bound{
		Name: "max_paging_calls", Group: Turn, Unit: "calls", Zero: "none runs",
		Doc: "Maximum number of paging calls in a turn, which read more of a stored output."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.ToolTimeout }, 60*time.Second, moment, day, Bound{
		Name: "tool_timeout", Group: Turn, Agent: true,
		Doc: "Timeout of one tool call."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.ModelTimeout }, 0, 0, day, Bound{
		Name: "model_timeout", Group: Turn, Zero: "the rest of the turn",
		Doc: "Timeout of one model call without streaming (`stream: false`). For streaming calls see " +
			"model_idle_timeout."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.ModelIdle }, 20*time.Second, moment, day, Bound{
		Name: "model_idle_timeout", Group: Turn,
		Doc: "Maximum time in a model call without receiving a byte."}),
	boolean(func(b *turnkeeper.Bounds) *bool { return &b.Continuation }, true, Bound{
		Name: "continuation", Group: Turn, Agent: true,
		Doc: "Whether the model is called again with the results of tools. false: the turn ends after one " +
			"round and its tools."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxToolResultChars }, 6000, 1, 1_000_000, Bound{
		Name: "max_tool_result_chars", Group: Turn, Unit: "characters", Agent: true,
		Doc: "Maximum length of the part of a tool's result that the model is shown at once."}),
	boolean(func(b *turnkeeper.Bounds) *bool { return &b.Paging }, true, Bound{
		Name: "paging", Group: Turn, Agent: true,
		Doc: "Whether the model can read the rest of a cut result with get_continuation and " +
			"get_tool_output."}),
	boolean(func(b *turnkeeper.Bounds) *bool { return &b.Async }, true, Bound{
		Name: "async", Group: Turn, Agent: true,
		Doc: "Whether very long results are replaced by handles, and slow calls continue in the " +
			"background."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.AsyncTokenThreshold }, 10000, 0, 1_000_000, Bound{
		Name: "async_token_threshold", Group: Turn, Unit: "tokens", Zero: "every result that is not empty", Agent: true,
		Doc: "Estimated tokens above which a result is replaced by a handle."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.AsyncTimeout }, 5*time.Second, 0, day, Bound{
		Name: "async_timeout", Group: Turn, Zero: "never", Agent: true,
		Doc: "Time after which a running call moves to the background."}),
	boolean(func(b *turnkeeper.Bounds) *bool { return &b.OutputHandles }, false, Bound{
		Name: "output_handles", Group: Turn, Agent: true,
		Doc: "Whether a string argument `output:ID` or `output:ID[START:END]` is replaced by the text of that " +
			"stored result of the turn."}),
	boolean(func(b *turnkeeper.Bounds) *bool { return &b.Summarise }, true, Bound{
		Name: "summarise", Group: Turn, Agent: true,
		Doc: "Whether earlier turns of a conversation that do not fit the context window are summarised by " +
			"a model call. false: they are left out."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxSubAgents }, 8, 0, 1000, Bound{
		Name: "max_sub_agents", Group: SubAgents, Unit: "agents", Zero: "none is spawned", Agent: true,
		Doc: "Maximum number of sub-agents of one turn."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxSubAgentDepth }, 3, 0, 20, Bound{
		Name: "max_sub_agent_depth", Group: SubAgents, Unit: "turns", Zero: "none is spawned", Agent: true,
		Doc: "Maximum depth of a tree of sub-agents below the first turn."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxTreeSubAgents }, 32, 0, 10_000, Bound{
		Name: "max_tree_sub_agents", Group: SubAgents, Unit: "agents", Zero: "none is spawned", Agent: true,
		Doc: "Maximum number of sub-agents in a tree."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration {
		return &b.SubAgentTimeout
	}, 24*time.Hour, time.Second, day, Bound{
		Name: "sub_agent_timeout", Group: SubAgents, Agent: true,
		Doc: "Maximum wait for the reply of a sub-agent."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.LeaseTTL }, 240*time.Second, moment, 2*day, Bound{
		Name: "lease_ttl", Group: Leases,
		Doc: "Duration of a lease, the right to run a turn."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.Margin }, 30*time.Second, 0, day, Bound{
		Name: "lease_margin", Group: Leases, Zero: "no margin",
		Doc: "Safety margin before the end of a lease."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.FreshnessWindow }, 600*time.Second, 0, month, Bound{
		Name: "freshness_window", Group: Repeats, Zero: "off", Agent: true,
		Doc: "In turns of a schedule, a call of a tool with an effect is skipped if an equal one succeeded " +
			"within this time."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.CooldownFailures }, 3, 0, 20, Bound{
		Name: "cooldown_failures", Group: Repeats, Unit: "failures", Zero: "off",
		Doc: "Number of equal failures after which a call in turns of a schedule is skipped for a while; " +
			"for tools with an effect, and reading tools with their own `freshness`."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration {
		return &b.CooldownWindow
	}, 1800*time.Second, time.Second, month, Bound{
		Name: "cooldown_window", Group: Repeats,
		Doc: "Time within which these failures are counted."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.Cooldown }, 1800*time.Second, 0, month, Bound{
		Name: "cooldown", Group: Repeats, Zero: "off",
		Doc: "Time for which the call is then skipped."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxAttempts }, 3, 1, 100, Bound{
		Name: "max_attempts", Group: Repeats, Unit: "turns",
		Doc: "Maximum number of failed turns of a message that count: with unusable answers, or that " +
			"reached max_duration before any tool ran. Failures of a service do not count: see " +
			"give_up_after."}),
	duration(func(b *turnkeeper.Bounds) *time.Duration { return &b.GiveUpAfter }, 24*time.Hour, 0, month, Bound{
		Name: "give_up_after", Group: Repeats, Zero: "it fails at once", Agent: true,
		Doc: "Maximum time since the first failure that a message waits for an unavailable model; then it " +
			"fails with a reply. The wait for a person or a budget does not count."}),
	number(func(b *turnkeeper.Bounds) *int { return &b.MaxDispatches }, 3, 1, 100, Bound{
		Name: "max_dispatches", Group: Repeats, Unit: "workers",
		Doc: "Number of lost workers after which a message is answered without being run again."}),
}
