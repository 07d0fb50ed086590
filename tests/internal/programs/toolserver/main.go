// Command toolserver is an MCP server over standard input and output. Its argument names a file with
// its tools: {"NAME": "DESCRIPTION"}. A call returns the name and description of the tool.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

type object = map[string]any

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	var tools map[string]string
	if err := json.Unmarshal(text, &tools); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if in.Decode(&m) != nil {
			return
		}
		if m.ID == nil {
			continue
		}
		reply := object{"jsonrpc": "2.0", "id": m.ID}
		if result := answer(m.Method, m.Params.Name, tools); result != nil {
			reply["result"] = result
		} else {
			reply["error"] = object{"code": -32601, "message": "method not found"}
		}
		if out.Encode(reply) != nil {
			return
		}
	}
}

// answer returns the result of a request, or nil if the method is unknown.
func answer(method, tool string, tools map[string]string) object {
	switch method {
	case "initialize":
		return object{
			"protocolVersion": "2025-11-25", "serverInfo": object{"name": "toolserver", "version": "1"}, "capabilities": object{"tools": object{}},
		}
	case "ping":
		return object{}
	case "tools/list":
		list := []object{}
		for name, description := range tools {
			list = append(list, object{"name": name, "description": description, "inputSchema": object{"type": "object"}})
		}
		return object{"tools": list}
	case "tools/call":
		return object{"content": []object{{"type": "text", "text": tool + ": " + tools[tool]}}}
	}
	return nil
}
