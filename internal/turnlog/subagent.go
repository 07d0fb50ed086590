package turnlog

import (
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/policy"
)

// A Lineage is the position of a turn in a tree of sub-agents. The zero value is that of a turn
// outside any tree.
type Lineage struct {
	Root   turnkeeper.TurnID  // the first turn of the tree; 0: this one
	Parent turnkeeper.TurnID  // the turn whose call spawned this one; 0: none
	Call   turnkeeper.CallKey // of Parent
	Agents []string           // from the root's agent to the turn's; nil: only the turn's
	Limits TreeLimits
}

// Depth returns the number of turns above this one.
func (l Lineage) Depth() int { return max(len(l.Agents)-1, 0) }

// Within returns the agents from the root's to the turn's, which is agent.
func (l Lineage) Within(agent string) []string {
	if l.Agents == nil {
		return []string{agent}
	}
	return l.Agents
}

// TreeLimits are the limits of a tree of sub-agents: those of the root's agent when it spawned
// the first one.
type TreeLimits struct {
	MaxDepth  int   // maximum number of turns above another
	MaxAgents int   // maximum number of sub-agents in the tree
	Tokens    int64 // of all model calls of the tree; 0: no limit
	Calls     int64 // model calls of the tree; 0: no limit
}

// A Spawn is the message to a sub-agent, written with the start of a call. It has its own
// conversation and lane, and the priority and age of the parent's message.
type Spawn struct {
	Message turnkeeper.MessageID // reserved before, and never used for another message
	Agent   string
	Task    string
	Root    turnkeeper.TurnID // of the tree
	Agents  []string          // from the root's to the new one's
	Limits  TreeLimits
	Within  time.Duration // how long the call waits for the reply
	Labels  []policy.Mark // of the task

	// TraceParent is the traceparent of the message's turn, a child of the call. Empty: that
	// of the parent's message.
	TraceParent string
}

// SpawnConversation returns the conversation of a call's sub-agent, which is unique to the call.
func SpawnConversation(parent turnkeeper.TurnID, call turnkeeper.CallKey) string {
	return fmt.Sprintf("turn-%d-%s", parent, call)
}

// SpawnFailure is why a call of spawn_agent got no reply.
type SpawnFailure string

// The reasons.
const (
	SpawnUnknownAgent SpawnFailure = "unknown_agent"       // no worker registered it
	SpawnTreeFull     SpawnFailure = "max_tree_sub_agents" // the tree has reached its limit
	SpawnTooLong      SpawnFailure = "task_too_long"       // longer than a message may be
	SpawnTimeout      SpawnFailure = "timeout"             // no reply in time
)

// Refused reports whether no message was written.
func (t SpawnFailure) Refused() bool { return t != "" && t != SpawnTimeout }

// A SpawnEnd is the end of a call of spawn_agent: a reply, or the reason why there is none.
type SpawnEnd struct {
	Agent   string
	Message turnkeeper.MessageID // 0: none was written
	Turn    turnkeeper.TurnID    // newest turn of the message; 0: none
	Failure SpawnFailure
	Outcome turnkeeper.TurnState // of the reply; empty with Failure
	Stop    turnkeeper.StopReason
	Replied bool                   // the reply is stored; false: none, or purged
	Reply   string                 // empty: it has no text
	Calls   []turnkeeper.ReplyCall // of the reply
	Open    bool                   // its turn may still be running
	Labels  []policy.Mark          // of the reply
}

// State returns the resulting state of the call.
func (e SpawnEnd) State() turnkeeper.CallState {
	if e.Outcome == turnkeeper.TurnSucceeded || e.Outcome == turnkeeper.TurnDegraded {
		return turnkeeper.CallSucceeded
	}
	return turnkeeper.CallFailed
}

// A SubAgent is a call's message to another agent, in views for operators.
type SubAgent struct {
	Parent    turnkeeper.TurnID
	Call      turnkeeper.CallKey
	Agent     string
	Message   turnkeeper.MessageID // 0: none was written
	Failure   SpawnFailure
	State     turnkeeper.MessageState // empty: no message, or it was purged
	Turn      turnkeeper.TurnID       // newest of the message; 0: none yet
	TurnState turnkeeper.TurnState    // of that turn
	Usage     turnkeeper.Usage        // of that turn
	Depth     int
	Since     time.Time
	Until     time.Time // when the call stops waiting for the reply
	EndedAt   time.Time // zero: it has not ended
	Dropped   bool      // no call waits for it any more
}

// Ancestor reports whether agent is above a turn with this lineage, or is its own agent, self.
func (l Lineage) Ancestor(self, agent string) bool {
	return slices.Contains(l.Within(self), agent)
}
