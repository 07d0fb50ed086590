package outputs

import (
	"fmt"

	"turnkeeper"
)

// A Placeholder stands for an output in a conversation: the model is given the
// id and retrieves what it needs.
type Placeholder struct {
	ID   turnkeeper.OutputID
	Tool string
}

// Head is what every text of the placeholder begins with.
func (p Placeholder) Head() string {
	return fmt.Sprintf("Tool Output ID: %s\nTool: %s\n", p.ID, p.Tool)
}

// Large is what answers a call whose result of so many tokens is not shown.
func (p Placeholder) Large(tokens int64) string {
	return p.Head() + fmt.Sprintf("Size: ~%d tokens\n\nUse get_tool_output(\"%s\", mode) to retrieve this output:\n"+
		"- \"extract\": Extract specific information you need\n- \"slice\": Get bytes around an anchor string", tokens, p.ID)
}

// Background is what answers a call that goes on in the background.
func (p Placeholder) Background() string {
	return p.Head() + fmt.Sprintf("\nWhen the System Notice shows this tool is ready, "+
		"use get_tool_output(\"%s\", mode) to retrieve its output.", p.ID)
}
