package agentturn

import (
	"context"
	"slices"
	"strings"
	"time"
	"turnkeeper/agentturn/prompt"

	"turnkeeper"
)

// awaitHolders waits until nothing holds the call back. For what runs here the turn stands
// still. For what is open elsewhere alone it waits, and holds nothing: waits then says so,
// and the call stays planned.
func (t *execution) awaitHolders(ctx context.Context, call *turnkeeper.ToolCall) (waits bool, err error) {
	for look := firstSpawnLook; t.rounds.holds(call); look = min(2*look, slowSpawnLook) {
		if err := t.takeArrivals(ctx); err != nil {
			return false, err
		}
		t.collect()
		if !t.rounds.holds(call) {
			break
		}
		if err := t.commit(ctx); err != nil { // whoever looks sees what the call waits for
			return false, err
		}
		switch {
		case len(t.rounds.detached()) == 0:
			if err := t.awaitJob(ctx); err != nil {
				return false, err
			}
		case len(t.background) == 0 && !time.Now().Before(t.stillUntil):
			return true, nil
		case !pause(ctx, look):
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// unseenEffects are the calls with an effect that have ended since the newest answer was
// asked for: its request told that they run. What a request told is on record, so this
// depends on no clock.
func unseenEffects(rounds []turnkeeper.Round) []turnkeeper.ToolCall {
	if len(rounds) == 0 || rounds[len(rounds)-1].Recipe == nil {
		return nil
	}
	notice := rounds[len(rounds)-1].Recipe.Notice
	return slices.DeleteFunc(prompt.CallsOf(rounds), func(c turnkeeper.ToolCall) bool {
		return !hasEffect(&c) || !c.State.Answered() || !prompt.WentOn(c) || !strings.Contains(notice, prompt.RunningMark(c))
	})
}
