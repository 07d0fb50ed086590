package turnlog

import (
	"fmt"
	"slices"
	"time"

	"turnkeeper"
)

// A Lineage says where a turn stands in a tree of agents that work for agents.
// The zero value is that of a turn that nobody spawned.
type Lineage struct {
	Root   turnkeeper.TurnID  // the turn that the tree began with; 0: this one
	Parent turnkeeper.TurnID  // whose call this turn works for; 0: nobody's
	Call   turnkeeper.CallKey // of Parent
	Agents []string           // from the root's agent to the turn's own; nil: only that
	Limits TreeLimits
}

// Depth is how many turns are above this one.
func (l Lineage) Depth() int { return max(len(l.Agents)-1, 0) }

// Within are the agents from the root's to the turn's own.
func (l Lineage) Within(agent string) []string {
	if l.Agents == nil {
		return []string{agent}
	}
	return l.Agents
}

// TreeLimits bound a tree of agents. They are those of the agent that it began
// with, at the moment that it spawned the first one.
type TreeLimits struct {
	MaxDepth  int   // turns above another, at most
	MaxAgents int   // messages to sub-agents, in the whole tree
	Tokens    int64 // of all model calls of the tree; 0: no bound
	Calls     int64 // model calls of the tree; 0: no bound
}

// A Spawn is the message to a sub-agent that the start of a call writes. It goes
// into a conversation, and a lane, of its own, with the priority of the message
// that the parent handles, and as old as that.
type Spawn struct {
	Message turnkeeper.MessageID // taken for it before; never used for another
	Agent   string
	Task    string
	Root    turnkeeper.TurnID // of the tree
	Agents  []string          // from the root's to the new one
	Limits  TreeLimits
	Within  time.Duration // how long its reply is waited for

	// TraceParent is where the message's turn hangs in a trace: below the call. Empty:
	// where the parent's message does.
	TraceParent string
}

// SpawnConversation is the conversation of a call's sub-agent: no two calls have
// the same.
func SpawnConversation(parent turnkeeper.TurnID, call turnkeeper.CallKey) string {
	return fmt.Sprintf("turn-%d-%s", parent, call)
}

// SpawnTrouble is why a call of ToolSpawnAgent got no reply.
type SpawnTrouble string

// The troubles.
const (
	SpawnUnknownAgent SpawnTrouble = "unknown_agent"       // no worker has ever registered it
	SpawnTreeFull     SpawnTrouble = "max_tree_sub_agents" // the tree may have no more
	SpawnTooLong      SpawnTrouble = "task_too_long"       // for a message
	SpawnTimeout      SpawnTrouble = "timeout"             // no reply came in time
)

// Refused says that no message was written.
func (t SpawnTrouble) Refused() bool { return t != "" && t != SpawnTimeout }

// A SpawnEnd is what a call of ToolSpawnAgent has come to: a reply, or a trouble.
type SpawnEnd struct {
	Agent   string
	Message turnkeeper.MessageID // 0: none was written
	Turn    turnkeeper.TurnID    // newest of the message; 0: none yet
	Trouble SpawnTrouble
	Outcome turnkeeper.TurnState // of the reply; empty with a trouble
	Stop    turnkeeper.StopReason
	Replied bool                   // its reply is on record; else it was purged, or there is none
	Reply   string                 // empty: it has no text
	Calls   []turnkeeper.ReplyCall // of the reply
	Open    bool                   // its turn may still run
}

// State is what the end makes of the call.
func (e SpawnEnd) State() turnkeeper.CallState {
	if e.Outcome == turnkeeper.TurnSucceeded || e.Outcome == turnkeeper.TurnDegraded {
		return turnkeeper.CallSucceeded
	}
	return turnkeeper.CallFailed
}

// A SubAgent is a call's message to another agent, as operators see it.
type SubAgent struct {
	Parent    turnkeeper.TurnID
	Call      turnkeeper.CallKey
	Agent     string
	Message   turnkeeper.MessageID // 0: none was written
	Trouble   SpawnTrouble
	State     turnkeeper.MessageState // empty: there is no message, or it was purged
	Turn      turnkeeper.TurnID       // newest of the message; 0: none yet
	TurnState turnkeeper.TurnState    // of that turn
	Usage     turnkeeper.Usage        // of that turn
	Depth     int
	Since     time.Time
	Until     time.Time // how long its reply is waited for
	EndedAt   time.Time // zero: it has not
	Dropped   bool      // nobody waits for it any more
}

// Ancestor says that an agent is above, or is itself, a turn with this lineage.
func (l Lineage) Ancestor(self, agent string) bool {
	return slices.Contains(l.Within(self), agent)
}
