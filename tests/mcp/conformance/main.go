// Command conformance is the client that the official conformance suite of MCP
// drives: the client that a worker has, told by the suite's variables what to do.
// See scripts/mcp-conformance.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// calls are what each scenario has called, by the name that the suite gives it.
var calls = map[string]struct{ tool, arguments string }{
	"initialize":                          {},
	"tools_call":                          {"add_numbers", `{"a":5,"b":3}`},
	"elicitation-sep1034-client-defaults": {"test_client_elicitation_defaults", `{}`},
	"sse-retry":                           {"test_reconnection", `{}`},
}

func main() {
	if err := run(os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(scenario string, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: conformance URL")
	}
	call, known := calls[scenario]
	if !known {
		return fmt.Errorf("the scenario %q is not known here", scenario)
	}
	server := mcp.Server{Name: "suite", URL: args[0], AcceptDefaults: true}
	if call.tool == "" {
		_, err := mcp.Probe(context.Background(), server, nil)
		return err
	}
	client := mcp.New(mcp.Config{Servers: []mcp.Server{server}})
	defer client.Close()
	ending := tools.Execute(context.Background(), client.Tool("suite", call.tool),
		tools.Call{Arguments: json.RawMessage(call.arguments)}, tools.ExecuteOptions{Timeout: 25 * time.Second})
	if ending.Outcome != tools.Succeeded {
		return fmt.Errorf("%s: %s", ending.Outcome, ending.Result.Text)
	}
	return nil
}
