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

	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// A Scenario describes one run: the messages that are sent, the model's answers, and the
// check of the result. Talk is required.
//
// Tools and fakes keep state, so use a scenario for one run only. CrashEverywhere,
// PauseEverywhere and LoseAnswersEverywhere therefore take a function that makes a fresh
// one for each run.
type Scenario struct {
	// Agent is the text of the agent's file, AgentFile the path of one; set at most one
	// of them. With neither, the agent may use all of Tools. The script answers for every
	// model, so the file may name any model or none. Its schedule and budget are not
	// used.
	Agent     string
	AgentFile string

	// Tools are the tools that the agent's file may list. To fake a tool of an MCP
	// server, name the fake as models know the tool: see mcpdef.ToolName.
	Tools []tools.Tool

	// Talk holds the messages in order. Each is sent after the reply to the one before.
	Talk []Exchange

	// Rules compiles the rules in the agent's file and the tools' specs, for example cel.Compile
	// of package policy/cel. nil means that all rules except "always" and "never" ask.
	Rules policy.Compiler

	// Provider answers all model calls in place of the scripts in Talk; nil means the
	// scripts answer.
	Provider inference.Provider

	// Check checks the result after the invariants were checked. It is called within the
	// bubble of the run. nil means only the invariants are checked.
	Check func(t testing.TB, r *Result)

	// RealTime runs the scenario in real time, without a bubble of fake time, for tools
	// that communicate with something outside of the process. Each crashed or paused
	// worker then costs TakeoverAfter.
	RealTime bool

	// TakeoverAfter is how long a worker must be silent before another takes over its
	// turns. 0 means 15 s, or 2 s in real time.
	TakeoverAfter time.Duration

	// Patience is how long the run waits for each reply. 0 means an hour, or 30 s in real
	// time.
	Patience time.Duration

	plant func(*memory.Store) // makes the store faulty; nil: not faulty
}

// An Exchange is one message with the model's answers in the turn that handles it.
type Exchange struct {
	Say          string
	User         string // whose conversation it is; empty: no user's
	Conversation string // empty: turnkeeper.DefaultConversation

	// Model has a step for each round of the turn. If a worker dies before an answer was
	// recorded, the next worker asks for the same round and gets the same step. A search
	// of a stored result (get_tool_output in mode extract) takes no step: it finds the
	// lines that hold the most words of the query.
	Model []Step

	// Answers are people's answers to the asks of the message's turns, in the order in which the asks
	// are opened. An ask without an answer expires, which denies it.
	Answers []Answer
}

// agentName is the name of an agent that has no file.
const agentName = "agent"

// definition returns the scenario's agent, checked against its tools. given are the names
// of the scenario's tools.
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
			return nil,
				fmt.Errorf("the agent lists the tool %q, which is not among the scenario's Tools (there are: %s)",
					name, strings.Join(given, ", "))
		}
	}
	return def, nil
}

// mcpTools returns the names, as models know them, of the agent's tools of MCP servers.
func mcpTools(def *agentdef.Definition) (names []string) {
	for _, server := range def.MCPServers {
		for _, tool := range server.Tools {
			names = append(names, mcpdef.ToolName(server.Name, tool))
		}
	}
	return names
}

// fakeServers replaces the agent's MCP servers.
type fakeServers struct{ registry *tools.Registry }

// ToolsOf returns the fakes. A scenario that lacks one of them does not start.
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

// Defaults of Scenario.TakeoverAfter and Scenario.Patience, in fake and in real time.
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
