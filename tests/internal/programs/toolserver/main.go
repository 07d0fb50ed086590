// Command toolserver is an MCP server over standard input and output. Its first argument names a file with its tools:
// {"NAME": "DESCRIPTION"}. A call returns the name of the tool and its text in the file that the second argument names,
// {"NAME": "TEXT"}, or its description without one. For "many ITEM" it returns an array of these items, of 15 MB.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type object = map[string]any

func main() {
	tools := read(os.Args[1])
	results := tools
	if len(os.Args) > 2 {
		results = read(os.Args[2])
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
		if result := answer(m.Method, m.Params.Name, tools, results); result != nil {
			reply["result"] = result
		} else {
			reply["error"] = object{"code": -32601, "message": "method not found"}
		}
		if out.Encode(reply) != nil {
			return
		}
	}
}

// read reads a file of tools.
func read(name string) (tools map[string]string) {
	text, err := os.ReadFile(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if err := json.Unmarshal(text, &tools); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	return tools
}

// manyBytes is the size of the array that a call with the text "many ITEM" returns.
const manyBytes = 15_000_000

// answer returns the result of a request, or nil if the method is unknown.
func answer(method, tool string, tools, results map[string]string) object {
	switch method {
	case "initialize":
		return object{
			"protocolVersion": "2025-11-25", "serverInfo": object{"name": "toolserver", "version": "1"},
			"capabilities": object{"tools": object{}},
		}
	case "ping":
		return object{}
	case "tools/list":
		list := []object{}
		for name, description := range tools {
			list = append(list, object{"name": name, "description": description,
				"inputSchema": object{"type": "object"}})
		}
		return object{"tools": list}
	case "tools/call":
		if item, many := strings.CutPrefix(results[tool], "many "); many {
			array := "[" + strings.Repeat(item+",", manyBytes/(len(item)+1)) + item + "]"
			return object{"content": []object{}, "structuredContent": object{"many": json.RawMessage(array)}}
		}
		return object{"content": []object{{"type": "text", "text": tool + ": " + results[tool]}}}
	}
	return nil
}
