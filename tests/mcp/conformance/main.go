// Command conformance is the client that the official conformance suite of MCP drives: the worker's client,
// controlled by the suite's environment variables. Where a scenario needs a user to log in, it logs in as
// turnctl mcp login does, with a browser that asks nothing. See scripts/mcp-conformance.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// calls has the tool call of each scenario, by the suite's name. OAuth scenarios make authCall.
var calls = map[string]call{
	"initialize":                          {},
	"tools_call":                          {"add_numbers", `{"a":5,"b":3}`},
	"elicitation-sep1034-client-defaults": {"test_client_elicitation_defaults", `{}`},
	"sse-retry":                           {"test_reconnection", `{}`},
}

type call struct{ tool, arguments string }

var authCall = call{"test-tool", `{}`}

const serverName = "suite"

func main() {
	if err := run(context.Background(), os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, scenario string, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: conformance URL")
	}
	server := mcp.Server{Name: serverName, URL: args[0], AcceptDefaults: true}
	if name, ok := strings.CutPrefix(scenario, "auth/"); ok {
		return runAuth(ctx, name, server)
	}
	call, known := calls[scenario]
	if !known {
		return fmt.Errorf("the scenario %q is unknown", scenario)
	}
	if call.tool == "" {
		_, err := mcp.Probe(ctx, server, mcp.Access{}, nil)
		return err
	}
	client := mcp.New(mcp.Config{Servers: []mcp.Server{server}})
	defer client.Close()
	return call.run(ctx, client)
}

// run calls the tool as a worker does.
func (c call) run(ctx context.Context, client *mcp.Client) error {
	ending := tools.Execute(ctx, client.Tool(serverName, c.tool),
		tools.Call{Arguments: json.RawMessage(c.arguments)}, tools.ExecuteOptions{Timeout: 25 * time.Second})
	if ending.Outcome != tools.Succeeded {
		return fmt.Errorf("%s: %s", ending.Outcome, ending.Result.Text)
	}
	return nil
}
