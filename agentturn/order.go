package agentturn

import (
	"context"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/pause"
)

// held says that a call must not begin yet: it has an effect, and a call with an effect
// before it in the same answer has not ended. Sub-agents do not hold each other: they work
// side by side, each in a turn of its own.
func (t *turn) held(call *turnkeeper.ToolCall) bool {
	if call.Effect == turnkeeper.EffectNone {
		return false
	}
	for _, before := range t.rounds[call.Key.Round-1].Calls[:call.Key.Ordinal-1] {
		bothSpawn := before.Name == turnkeeper.ToolSpawnAgent && call.Name == turnkeeper.ToolSpawnAgent
		if before.Effect != turnkeeper.EffectNone && !before.State.Answered() && !bothSpawn {
			return true
		}
	}
	return false
}

// awaitHolders waits until nothing holds the call back. For what runs here the turn stands
// still. For what is open elsewhere alone it waits, and holds nothing: waits then says so,
// and the call stays planned.
func (t *turn) awaitHolders(ctx context.Context, call *turnkeeper.ToolCall) (waits bool, err error) {
	for look := firstSpawnLook; t.held(call); look = min(2*look, slowSpawnLook) {
		if err := t.takeArrivals(ctx); err != nil {
			return false, err
		}
		t.collect()
		if !t.held(call) {
			break
		}
		if err := t.commit(ctx); err != nil { // whoever looks sees what the call waits for
			return false, err
		}
		switch {
		case len(t.elsewhere()) == 0:
			if err := t.awaitJob(ctx); err != nil {
				return false, err
			}
		case len(t.jobs) == 0 && !time.Now().Before(t.stillFor):
			return true, nil
		case pause.For(ctx, look) != nil:
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
	return slices.DeleteFunc(callsOf(rounds), func(c turnkeeper.ToolCall) bool {
		return !hasEffect(&c) || !c.State.Answered() || !WentOn(c) || !strings.Contains(notice, runningMark(c))
	})
}
