package prompt_test

import (
	"testing"

	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
)

// TestWhereARequestDiffers checks what is said of each way in which a request does not extend another one.
func TestWhereARequestDiffers(t *testing.T) {
	system, asked := inference.Message{Role: inference.RoleSystem, Text: "You test."},
		inference.Message{Role: inference.RoleUser, Text: "Do it."}
	said := inference.Message{Role: inference.RoleAssistant, Text: "Done."}
	before := inference.Request{Messages: []inference.Message{system, asked}}
	of := func(messages ...inference.Message) inference.Request { return inference.Request{Messages: messages} }
	tools := of(system, asked, said)
	tools.Tools = []inference.ToolDefinition{{Name: "look"}}
	changed := asked
	changed.Text = "Do it now."
	for want, after := range map[string]inference.Request{
		"":                          of(system, asked, said),
		"the tools differ":          tools,
		"the system prompt differs": of(said, asked, said),
		"message 2 of 2 differs, of the role user": of(system, changed, said),
		"it has only 1 of 2 messages":              of(system),
		"it has no message more":                   of(system, asked),
	} {
		if got := prompt.Difference(before, after); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
