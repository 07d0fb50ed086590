package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"turnkeeper"
	"turnkeeper/internal/pause"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// playedTools are the tools of a settingsWorld. Calls of meet and meet_once last until release.
type playedTools struct {
	freed    chan struct{}
	freeing  sync.Once
	entered  sync.Map // by agent: *atomic.Int32, the calls of meet that have begun
	released func()
}

func newPlayedTools() *playedTools {
	p := &playedTools{freed: make(chan struct{})}
	p.released = func() { close(p.freed) }
	return p
}

func (p *playedTools) release() { p.freeing.Do(p.released) }

// met returns how many calls of meet an agent has begun.
func (p *playedTools) met(agent string) int {
	n, _ := p.entered.LoadOrStore(agent, &atomic.Int32{})
	return int(n.(*atomic.Int32).Load())
}

type numberArgs struct {
	N int `json:"n"`
}

type textArgs struct {
	Text string `json:"text"`
}

type none struct{}

func (p *playedTools) all() []tools.Tool {
	return append(simpleTools(), p.meet("meet", turnkeeper.EffectNone), p.meet("meet_once", turnkeeper.EffectOnce))
}

func (p *playedTools) meet(name string, effect turnkeeper.Effect) tools.Tool {
	spec := tools.Spec{Name: name, Description: "Waits.", Effect: effect}
	return tools.New(spec, func(ctx context.Context, call tools.Call, _ none) (tools.Result, error) {
		n, _ := p.entered.LoadOrStore(call.Agent, &atomic.Int32{})
		n.(*atomic.Int32).Add(1)
		select {
		case <-p.freed:
			return tools.Result{Text: "met"}, nil
		case <-ctx.Done():
			return tools.Result{}, ctx.Err()
		}
	})
}

func simpleTools() []tools.Tool {
	spec := func(name string, effect turnkeeper.Effect, flow policy.Flow) tools.Spec {
		return tools.Spec{Name: name, Description: "A tool of a test.", Effect: effect, Flow: flow}
	}
	deadline := func(ctx context.Context, _ none) (string, error) {
		end, _ := ctx.Deadline()
		return end.UTC().Format(time.RFC3339Nano), nil
	}
	long := func(_ context.Context, a numberArgs) (string, error) { return strings.Repeat("x", a.N), nil }
	echo := func(_ context.Context, a textArgs) (string, error) { return a.Text, nil }
	fails := func(context.Context, none) (string, error) { return "", fmt.Errorf("it failed") }
	slow := func(ctx context.Context, a numberArgs) (string, error) {
		return "slow", pause.For(ctx, time.Duration(a.N)*time.Millisecond)
	}
	read, act := turnkeeper.EffectNone, turnkeeper.EffectOnce
	return []tools.Tool{
		tools.Func(spec("text", read, policy.Flow{}), long), tools.Func(spec("echo", read, policy.Flow{}), echo),
		tools.Func(spec("deadline", read, policy.Flow{}), deadline), tools.Func(spec("act", act, policy.Flow{}), echo),
		tools.Func(spec("slow", read, policy.Flow{}), slow), tools.Func(spec("fails", act, policy.Flow{}), fails),
		tools.Func(spec("secret", read, policy.Flow{Labels: []policy.Label{policy.Private}}), echo),
		tools.Func(spec("pay", act, policy.Flow{Sinks: []policy.Sink{policy.Changes}}), echo),
		tools.Func(spec("publish", act, policy.Flow{Sinks: []policy.Sink{policy.Sends}}), echo),
	}
}

// serveMCP is an MCP server with the tools left and right.
func serveMCP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	switch {
	case r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := `"result":{}`
	switch m.Method {
	case "initialize":
		answer =
			`"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"test","version":"1"},"capabilities":{"tools":{}}}`
	case "tools/list":
		answer =
			`"result":{"tools":[{"name":"left","inputSchema":{"type":"object"}},{"name":"right","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		answer = fmt.Sprintf(`"result":{"content":[{"type":"text","text":"%s was called"}]}`, m.Params.Name)
	case "server/discover":
		answer = `"error":{"code":-32601,"message":"no"}`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
}
