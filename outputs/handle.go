package outputs

import (
	"fmt"

	"turnkeeper"
)

// A Handle stands for an output in a conversation: the model is given the id and
// retrieves what it needs.
type Handle struct {
	ID   turnkeeper.OutputID
	Tool string
}

// Head is what every text of the handle begins with.
func (h Handle) Head() string { return fmt.Sprintf("Tool Output ID: %s\nTool: %s\n", h.ID, h.Tool) }

// Large is what answers a call whose result of so many tokens is not shown.
func (h Handle) Large(tokens int64) string {
	return h.Head() + fmt.Sprintf("Size: ~%d tokens\n\nUse get_tool_output(\"%s\", mode) to retrieve this output:\n"+
		"- \"extract\": Extract specific information you need\n- \"slice\": Get bytes around an anchor string", tokens, h.ID)
}

// Background is what answers a call that goes on in the background.
func (h Handle) Background() string {
	return h.Head() + fmt.Sprintf("\nWhen the System Notice shows this tool is ready, "+
		"use get_tool_output(\"%s\", mode) to retrieve its output.", h.ID)
}
