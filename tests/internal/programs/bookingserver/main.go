// Command bookingserver is an MCP server of protocol 2026-07-28 over standard input and output. Its tool book asks
// which seat to book, and goes on in any process: all that it remembers is in the state that the client returns. Each
// part of a call is a line of the ledger, the file that its argument names.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "bookingserver", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{
		Name: "book", Description: "Books a seat.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"train":{"type":"string"}},"required":["train"]}`),
	}, book)
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func book(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		Train string `json:"train"`
	}
	if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
		return nil, err
	}
	answer, _ := req.Params.InputResponses["seat"].(*mcp.ElicitResult)
	switch {
	case answer == nil:
		return &mcp.CallToolResult{
			RequestState: "a seat in " + args.Train,
			InputRequests: mcp.InputRequestMap{"seat": &mcp.ElicitParams{
				Message: "Which seat in " + args.Train + "?",
				RequestedSchema: json.RawMessage(
					`{"type":"object","properties":{"seat":{"type":"integer","minimum":1}},"required":["seat"]}`),
			}},
		}, record("asked about " + args.Train)
	case answer.Action != "accept":
		return text(answer.Action, true), record(answer.Action + " " + args.Train)
	}
	booked := fmt.Sprintf("%s: number %v", req.Params.RequestState, answer.Content["seat"])
	return text("booked "+booked, false), record("booked " + booked)
}

func text(s string, failed bool) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}, IsError: failed}
}

// record adds a line to the ledger.
func record(line string) error {
	f, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
