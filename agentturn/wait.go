package agentturn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"turnkeeper/agentturn/prompt"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Wait is what wait_for_tool_output tells: the calls that are done, and that no
// earlier wait has told of. Where there is none yet it waits for the first.
func (s *shelf) Wait(ctx context.Context) (done []tools.Finished, anyRuns bool, err error) {
	done, err = s.untold(ctx)
	if err != nil || len(done) == 0 && len(s.jobs) == 0 {
		return nil, false, err
	}
	if len(done) == 0 {
		if err := firstOver(ctx, s.jobs); err != nil {
			return nil, true, err
		}
	}
	for _, j := range s.jobs {
		if j.isOver() {
			done = append(done, tools.Finished{Tool: j.call.Name, ID: j.id, Bytes: sizeOf(j.done.Result)})
		}
	}
	return done, true, nil
}

// sizeOf is how many bytes of a result are kept.
func sizeOf(r tools.Result) int64 {
	if taken, drafted := r.Kept.(outputs.Taken); drafted {
		return taken.Output.SizeBytes
	}
	return int64(len(r.Text) + len(r.Bytes))
}

// untold are the calls that were done in the background when the shelf was made.
func (s *shelf) untold(ctx context.Context) (done []tools.Finished, err error) {
	for _, call := range s.calls {
		if !prompt.WentOn(call) || !call.State.Answered() || s.told(call.OutputID) {
			continue
		}
		stored, err := s.store.DescribeOutput(ctx, s.turn, call.OutputID)
		if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) { // not found: its worker was lost
			return nil, err
		}
		done = append(done, tools.Finished{Tool: call.Name, ID: call.OutputID, Bytes: stored.SizeBytes})
	}
	return done, nil
}

// told says that a wait has told of the output.
func (s *shelf) told(id turnkeeper.OutputID) bool {
	return slices.ContainsFunc(s.calls, func(c turnkeeper.ToolCall) bool {
		return c.Name == turnkeeper.ToolWaitForToolOutput && strings.Contains(c.Shown, "(id: "+string(id)+",")
	})
}
