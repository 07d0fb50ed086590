package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// waitTime is longer than any turn, so only the turn's time limit ends a wait.
const waitTime = 24 * time.Hour

func waitForOutput() tools.Tool {
	spec := tools.Spec{
		Name: turnkeeper.ToolWaitForToolOutput, Effect: turnkeeper.EffectNone, Paging: true, Timeout: waitTime,
		Parameters:  json.RawMessage(`{"type": "object", "properties": {}, "additionalProperties": false}`),
		Description: "Waits until at least one tool that runs in the background is done, and says which are.",
	}
	return tools.New(spec, func(ctx context.Context, call tools.Call, _ any) (tools.Result, error) {
		text, err := waited(ctx, call)
		return tools.Result{Text: text}, err
	})
}

func waited(ctx context.Context, call tools.Call) (string, error) {
	if call.Outputs == nil {
		return noneRuns, nil
	}
	done, anyRuns, err := call.Outputs.Wait(ctx)
	switch {
	case err != nil:
		return "", err
	case !anyRuns:
		return noneRuns, nil
	}
	var text strings.Builder
	text.WriteString("Completed tools:")
	for _, d := range done {
		fmt.Fprintf(&text, "\n- %s (id: %s, size: %s)", d.Tool, d.ID, size(d.Bytes))
	}
	return text.String(), nil
}

const noneRuns = "No async tools running."

// size formats a number of bytes, rounded, in the largest of B, KB and MB that gives
// at least 1.
func size(bytes int64) string {
	switch {
	case bytes < 1000:
		return fmt.Sprintf("%dB", bytes)
	case bytes < 999_500:
		return fmt.Sprintf("%dKB", (bytes+500)/1000)
	default:
		return fmt.Sprintf("%.1fMB", float64(bytes)/1e6)
	}
}
