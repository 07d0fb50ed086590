package program_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/program"
)

// A tool that counts words with a shell script. A worker of your own passes it
// to worker.Main; for the command worker, the same tool goes under "tools" in
// the config file.
func ExampleTool() {
	count := program.Tool(tools.Spec{
		Name:        "count_words",
		Description: "Counts the words of a text.",
		Parameters: json.RawMessage(`{
			"type": "object", "required": ["text"], "additionalProperties": false,
			"properties": {"text": {"type": "string"}}}`),
		Effect:  turnkeeper.EffectNone, // it only reads, so it may run again
		Timeout: time.Minute,
	}, program.Program{
		Argv: []string{"/bin/sh", "-c", `sed 's/.*"text":"\(.*\)"}/\1/' | wc -w | tr -d ' '`},
		Env:  []string{"PATH=/usr/bin:/bin", "LC_ALL=C"},
	})

	// A worker does this for every call of a model.
	res := tools.Execute(context.Background(), count, tools.Call{
		Arguments: json.RawMessage(`{"text":"nothing lost, nothing twice"}`),
	}, tools.ExecuteOptions{Timeout: count.Spec().Timeout})
	fmt.Print(res.Result.Text)
	// Output: 4
}
