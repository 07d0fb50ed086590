package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// BenchmarkBuild builds the three requests of a turn: in a new conversation, and in a long one of the same epoch by a
// worker that takes it over, and by the worker of the turn before.
func BenchmarkBuild(b *testing.B) {
	offer := prompt.Offer{Registry: &tools.Registry{}, Bounds: bounds.Default()}
	first, err := prompt.NewState(turn(), agent, offer, &prompt.Memory{}).Build(model, prompt.Moment{})
	if err != nil {
		b.Fatal(err)
	}
	first.Recipe.Epoch.Turn = 1
	var history []turnlog.Past
	for i := range 50 {
		p := past(turnkeeper.TurnID(i+1), strings.Repeat("Question. ", 20), fmt.Sprintf("call_%d", i), "",
			strings.Repeat("Answer. ", 50))
		recipe := first.Recipe
		if recipe.After = turnkeeper.TurnID(i); i > 0 {
			recipe.Start = nil
		}
		p.Rounds[0].Recipe = &recipe
		history = append(history, p)
	}
	for name, turns := range map[string]int{"new": 0, "taken-over": len(history), "kept": len(history)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			memory := &prompt.Memory{}
			for b.Loop() {
				record := turn(history[:turns]...)
				record.Turn.ID = 51
				if name != "kept" {
					memory = &prompt.Memory{}
				}
				s := prompt.NewState(record, agent, offer, memory)
				var rounds []turnkeeper.Round
				for n := range 3 {
					s.MissingParts(rounds)
					request, err := s.Build(model, prompt.Moment{Rounds: rounds})
					if err != nil || (request.Recipe.Start == nil) != (turns > 0 || n > 0) {
						b.Fatal(request.Recipe, err)
					}
					s.Unwritten(request.Recipe, request.Parts)
					round := round("", call("look", fmt.Sprint("call_", turns, n), strings.Repeat("0123456789", 20)))
					round.Number, round.Calls[0].Key.Round, round.Recipe = n+1, n+1, &request.Recipe
					rounds = append(rounds, round)
				}
			}
		})
	}
}
