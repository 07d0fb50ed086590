package turnkeepertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// A Scenario is what happens in one run: who is told what, what the model says,
// and what must be true at the end. Talk is required.
//
// A scenario is used for one run: its tools and fakes keep what happened to
// them. CrashEverywhere and its like therefore take a function that makes a
// fresh one for each.
type Scenario struct {
	// Agent is the text of the agent's file, AgentFile the path of one; set at
	// most one of them. With neither, the agent has all of Tools. Its model may
	// be any name, or none: the script answers for every model. Its schedule
	// and its budget are not used.
	Agent     string
	AgentFile string

	// Tools are those the agent's file may list. A fake of an MCP server's tool is
	// one with the name that models know that by: mcpdef.ToolName.
	Tools []tools.Tool

	// Talk is said in order; each message is sent when the one before has its
	// reply.
	Talk []Exchange

	// Provider answers all model calls in place of the scripts in Talk; nil:
	// the scripts do.
	Provider inference.Provider

	// Check looks at the result, after the invariants were. It is called within
	// the bubble of the run. nil: the invariants are all there is to check.
	Check func(t testing.TB, r *Result)

	// RealTime runs in the caller's time in place of a bubble of fake time: for
	// tools that reach out of the process. A worker that is crashed or paused
	// then costs TakeoverAfter.
	RealTime bool

	// TakeoverAfter is the silence after which another worker takes a turn over.
	// 0: 15 s, and 2 s in real time.
	TakeoverAfter time.Duration

	// Patience is how long the run waits for each reply. 0: an hour, and 30 s in
	// real time.
	Patience time.Duration

	plant func(*memory.Store) // makes the store faulty; nil: it is not
}

// An Exchange is one message, and what the model says in the turn that it
// starts.
type Exchange struct {
	Say          string
	Conversation string // empty: turnkeeper.DefaultConversation

	// Model has a step for each round of the turn. When a worker dies before an
	// answer was recorded, the next one asks for the same round, and gets the
	// same step. A search of a stored result (get_tool_output in mode extract) takes
	// no step: it finds the lines that hold the most words of the query.
	Model []Step
}

// agentName is the agent's where it has no file.
const agentName = "agent"

// definition is the agent of the scenario, checked against its tools; given are
// those of the scenario.
func (s *Scenario) definition(registry *tools.Registry, given []string) (*agentdef.Definition, error) {
	path, source, err := s.source(given)
	if err != nil {
		return nil, err
	}
	def, err := agentdef.Parse(path, source)
	if err != nil {
		return nil, err
	}
	for _, name := range append(slices.Clip(def.Tools), mcpTools(def)...) {
		if _, ok := registry.Get(name); !ok {
			return nil, fmt.Errorf("the agent lists the tool %q, which is not among the scenario's Tools (there are: %s)",
				name, strings.Join(given, ", "))
		}
	}
	return def, nil
}

// mcpTools are the agent's tools of MCP servers, by the names that models know.
func mcpTools(def *agentdef.Definition) (names []string) {
	for _, server := range def.MCPServers {
		for _, tool := range server.Tools {
			names = append(names, mcpdef.ToolName(server.Name, tool))
		}
	}
	return names
}

// fakeServers stand for the MCP servers of the agent.
type fakeServers struct{ registry *tools.Registry }

// ToolsOf are fakes; a scenario without one of them does not begin.
func (f fakeServers) ToolsOf(def *agentdef.Definition) (have []tools.Tool, lacks []string) {
	for _, name := range mcpTools(def) {
		if tool, ok := f.registry.Get(name); ok {
			have = append(have, tool)
		}
	}
	return have, nil
}

func (s *Scenario) source(all []string) (path string, source []byte, err error) {
	path = agentName + ".md"
	switch {
	case s.Agent != "" && s.AgentFile != "":
		return "", nil, errors.New("set Agent or AgentFile, not both")
	case s.AgentFile != "":
		source, err = os.ReadFile(s.AgentFile)
		return s.AgentFile, source, err
	case s.Agent != "":
		return path, []byte(s.Agent), nil
	}
	if all == nil {
		all = []string{}
	}
	list, err := json.Marshal(all)
	return path, fmt.Appendf(nil, "---\ntools: %s\n---\nYou do what you are asked with your tools.\n", list), err
}

func (s *Scenario) check() error {
	if len(s.Talk) == 0 {
		return errors.New("the scenario has no Talk: nobody says anything")
	}
	if i := slices.IndexFunc(s.Talk, func(e Exchange) bool { return len(e.Model) == 0 }); i >= 0 && s.Provider == nil {
		return fmt.Errorf("the model has nothing to say to %q: give it steps, or set Provider", s.Talk[i].Say)
	}
	return nil
}

// Defaults of a scenario's spans, in fake and in real time.
const (
	fakeTakeover, realTakeover = 15 * time.Second, 2 * time.Second
	fakePatience, realPatience = time.Hour, 30 * time.Second
)

func (s *Scenario) span(set, fake, real time.Duration) time.Duration {
	switch {
	case set != 0:
		return set
	case s.RealTime:
		return real
	default:
		return fake
	}
}

// bounds are those of a worker without settings of its own.
func bounds() turnkeeper.Bounds { return turnkeeper.DefaultBounds() }
