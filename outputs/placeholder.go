package outputs

import (
	"fmt"

	"turnkeeper"
)

// A Placeholder replaces an output in a conversation. The model retrieves the output by its
// id.
type Placeholder struct {
	ID   turnkeeper.OutputID
	Tool string
}

// Head returns the beginning of every text of the placeholder.
func (p Placeholder) Head() string {
	return fmt.Sprintf("Tool Output ID: %s\nTool: %s\n", p.ID, p.Tool)
}

// Large returns the answer to a call whose result, of so many tokens, is too large.
func (p Placeholder) Large(tokens int64) string {
	return p.Head() + fmt.Sprintf("Size: ~%d tokens\n\nUse get_tool_output(\"%s\", mode) to retrieve this output:\n"+
		"- \"extract\": Extract specific information you need\n- \"slice\": Get bytes around an anchor string", tokens,
		p.ID)
}

// Background returns the answer to a call that runs in the background, or detached.
func (p Placeholder) Background() string {
	return p.Head() + fmt.Sprintf("\nWhen the System Notice shows this tool is ready, "+
		"use get_tool_output(\"%s\", mode) to retrieve its output.", p.ID)
}
