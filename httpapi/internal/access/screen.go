package access

import (
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// Screen hides of the reasons why a message waits what is for operators, from a caller without the scope read: workers,
// errors and the reason of a pause. From a caller whose token is bound to a user it hides what they say about other
// users: errors of their turns, and names of their lanes. From a caller who does not see the agent of a sub-agent it
// hides which one that is.
func Screen(c *request.Call, m *waiting.Message) {
	if !c.Caller.May(request.ScopeRead) {
		m.LastError = ""
	}
	ScreenWaits(c, m.Waits)
}

// ScreenMessages is Screen for a list.
func ScreenMessages(c *request.Call, messages []waiting.Message) {
	for i := range messages {
		Screen(c, &messages[i])
	}
}

// ScreenExchanges is Screen for the messages of a transcript.
func ScreenExchanges(c *request.Call, exchanges []operate.Exchange) {
	for i := range exchanges {
		Screen(c, &exchanges[i].Message)
	}
}

// ScreenTurns is Screen for the reasons why turns wait.
func ScreenTurns(c *request.Call, turns []waiting.Turn) {
	for _, turn := range turns {
		ScreenWaits(c, turn.Waits)
	}
}

// ScreenLanes is Screen for the reasons why lanes wait.
func ScreenLanes(c *request.Call, lanes []operate.LaneView) {
	for _, lane := range lanes {
		ScreenWaits(c, lane.Waits)
		ScreenWaits(c, lane.Outside)
	}
}

// ScreenWaits is Screen for the reasons alone.
func ScreenWaits(c *request.Call, waits []waiting.Wait) {
	reads, bound := c.Caller.May(request.ScopeRead), c.Caller.User() != ""
	for i := range waits {
		w := &waits[i]
		if !reads || bound {
			w.Worker, w.Why = "", ""
		}
		if bound {
			w.Lane = ""
		}
		if w.Reason == waiting.SubAgents && !c.Caller.Sees(w.Agent) {
			w.Agent, w.Message = "", 0
		}
	}
}

// screenTree hides of a tree the agents that the caller must not see, with what is known of their messages and turns.
// It keeps their places in the tree, and their tokens, which are part of its sum. tree may be nil.
func screenTree(c *request.Call, tree *operate.Tree) {
	if tree == nil {
		return
	}
	if !c.Caller.Sees(tree.Agent) {
		tree.Agent, tree.State = "", ""
	}
	for i, a := range tree.SubAgents {
		if !c.Caller.Sees(a.Agent) {
			tree.SubAgents[i] = turnlog.SubAgent{
				Parent: a.Parent, Call: a.Call, Turn: a.Turn, Depth: a.Depth, Usage: a.Usage, Since: a.Since,
				Until: a.Until,
			}
		}
	}
}
