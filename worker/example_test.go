package worker_test

import (
	"context"
	"fmt"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/worker"
)

// An address is the arguments of the tool: its schema comes from the tags.
type address struct {
	City string `json:"city" jsonschema:"the city, in English"`
}

// A worker whose agents can list the tool weather. Build it, put "tools:
// [weather]" into an agent's file, and start it in place of the command worker.
func Example() {
	weather := tools.Func(tools.Spec{
		Name:        "weather",
		Description: "Tells the weather of a city.",
		Effect:      turnkeeper.EffectNone, // it only reads, so it may run again
	}, func(_ context.Context, a address) (string, error) {
		return fmt.Sprintf("It is sunny in %s.", a.City), nil
	})
	worker.Main(weather)
}
