package builtin

import (
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/tools"
)

type askArgs struct {
	Question string   `json:"question" jsonschema:"What you want to know, whole in itself: the person has not read this conversation."`
	Options  []string `json:"options,omitempty" jsonschema:"The answers to choose from. Left out: any text."`
}

// NewAskPerson returns the tool ask_person, of effect none. The turn runs its calls itself: it waits for the answer
// without holding anything.
func NewAskPerson() tools.Tool {
	spec := tools.Spec{
		Name: turnkeeper.ToolAskPerson, Effect: turnkeeper.EffectNone,
		Description: "Asks a person, and returns the answer. It may take hours or days: ask only what you cannot find out yourself, and all of it at once.",
	}
	return tools.Func(spec, func(context.Context, askArgs) (string, error) {
		return "", errors.New("only a turn can ask a person")
	})
}
