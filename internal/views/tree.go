package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

// An AgentTree is a turn and all sub-agents that work for it, at any depth.
type AgentTree struct {
	Root       turnkeeper.TurnID  `json:"root_turn_id"`
	Parent     *turnkeeper.TurnID `json:"parent_turn_id" doc:"the turn that this turn works for; null: none"`
	ParentCall string             `json:"parent_call" doc:"round-R-tool-I, in the parent turn"`
	Depth      int                `json:"depth" doc:"depth of this turn; 0: the root"`
	MaxDepth   int                `json:"max_depth"`
	MaxAgents  int                `json:"max_sub_agents"`
	Tokens     Usage              `json:"tokens"` // of the root and the newest turn of each sub-agent
	MaxTokens  int64              `json:"budget_tokens" doc:"0: no limit"`
	MaxCalls   int64              `json:"budget_calls" doc:"0: no limit"`
	UsedTokens int64              `json:"used_tokens" doc:"used tokens of the budget, if it has one"`
	UsedCalls  int64              `json:"used_calls"`
	SubAgents  []SubAgent         `json:"sub_agents" doc:"in the order of their calls, at most 1000"`
}

// A SubAgent is a call to a sub-agent.
type SubAgent struct {
	Parent    turnkeeper.TurnID       `json:"parent_turn_id"`
	Call      string                  `json:"call" doc:"round-R-tool-I"`
	Agent     string                  `json:"agent" doc:"empty: the token does not cover it, and sees no more of it than its call and tokens"`
	Depth     int                     `json:"depth"`
	MessageID *turnkeeper.MessageID   `json:"message_id" doc:"null: the call was refused, or the token does not cover the agent"`
	State     turnkeeper.MessageState `json:"message_state" schema:"orEmpty" doc:"empty: the call was refused, or the token does not cover the agent"`
	TurnID    *turnkeeper.TurnID      `json:"turn_id"`
	TurnState turnkeeper.TurnState    `json:"turn_state" schema:"orEmpty" doc:"empty: no turn"`
	Failure   turnlog.SpawnFailure    `json:"failure" doc:"why the call got no reply; empty: replied or still open"`
	Dropped   bool                    `json:"dropped" doc:"its reply is no longer waited for"`
	Tokens    Usage                   `json:"tokens"`
	Since     time.Time               `json:"since"`
	Until     time.Time               `json:"until" doc:"deadline of its reply"`
	EndedAt   *time.Time              `json:"ended_at"`
}

// OfAgentTree returns the view of a tree of agents.
func OfAgentTree(t operate.Tree) AgentTree {
	v := AgentTree{
		Root: t.Root, Parent: OrNull(t.Lineage.Parent), Depth: t.Lineage.Depth(), MaxDepth: t.Limits.MaxDepth,
		MaxAgents: t.Limits.MaxAgents,
		Tokens:    OfUsage(t.Usage), MaxTokens: t.Limits.Tokens, MaxCalls: t.Limits.Calls, UsedTokens: t.UsedTokens,
		UsedCalls: t.UsedCalls,
		SubAgents: All(t.SubAgents, OfSubAgent),
	}
	if t.Lineage.Parent != 0 {
		v.ParentCall = t.Lineage.Call.String()
	}
	return v
}

// OfSubAgent returns the view of a call to a sub-agent.
func OfSubAgent(a turnlog.SubAgent) SubAgent {
	return SubAgent{
		Parent: a.Parent, Call: a.Call.String(), Agent: a.Agent, Depth: a.Depth, MessageID: OrNull(a.Message),
		State:  a.State,
		TurnID: OrNull(a.Turn), TurnState: a.TurnState, Failure: a.Failure, Dropped: a.Dropped,
		Tokens: OfUsage(a.Usage),
		Since:  a.Since, Until: a.Until, EndedAt: OrNull(a.EndedAt),
	}
}
