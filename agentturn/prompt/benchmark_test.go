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

// BenchmarkBuild composes the three requests of a turn, in a new conversation and in a long one.
func BenchmarkBuild(b *testing.B) {
	var history []turnlog.Past
	for i := range 50 {
		id := fmt.Sprintf("call_%d", i)
		history = append(history, past(turnkeeper.TurnID(i+1), strings.Repeat("Question. ", 20), id, "",
			strings.Repeat("Answer. ", 50)))
	}
	rounds := []turnkeeper.Round{
		round("", call("look", "call_a", strings.Repeat("0123456789", 20))),
		round("", call("look", "call_b", strings.Repeat("0123456789", 20))),
	}
	rounds[1].Number, rounds[1].Calls[0].Key.Round = 2, 2
	for _, turns := range []int{0, len(history)} {
		b.Run(fmt.Sprintf("past=%d", turns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := prompt.NewState(turn(history[:turns]...), agent,
					prompt.Offer{Registry: &tools.Registry{}, Bounds: bounds.Default()}, &prompt.Calibrations{})
				for n := range len(rounds) + 1 {
					if _, err := s.Build(model, prompt.Moment{Rounds: rounds[:n]}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
