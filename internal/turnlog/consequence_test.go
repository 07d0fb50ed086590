package turnlog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

func TestConsequenceOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome turnlog.Outcome
		want    turnlog.Consequence
	}{
		"succeeded": {turnlog.Outcome{State: turnkeeper.TurnSucceeded},
			turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "finished"}},
		"degraded": {turnlog.Outcome{State: turnkeeper.TurnDegraded},
			turnlog.Consequence{Message: turnkeeper.MessageDegraded, Log: "finished"}},
		"cancelled": {turnlog.Outcome{State: turnkeeper.TurnCancelled},
			turnlog.Consequence{Message: turnkeeper.MessageCancelled, Log: "finished"}},
		"handed back": {turnlog.Outcome{State: turnkeeper.TurnQueued},
			turnlog.Consequence{Message: turnkeeper.MessageRunning, Log: "handed_back"}},
		"deferred": {turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: 1},
			turnlog.Consequence{Message: turnkeeper.MessageRunning, Log: "deferred"}},
		"waiting": {turnlog.Outcome{State: turnkeeper.TurnWaiting},
			turnlog.Consequence{Message: turnkeeper.MessageRunning, Log: "waiting"}},
		"failed": {turnlog.Outcome{State: turnkeeper.TurnFailed, Backoff: 5},
			turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"}},
		"failed once": {turnlog.Outcome{State: turnkeeper.TurnFailed, Retry: true, Backoff: 5},
			turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: 5}},
	} {
		if diff := cmp.Diff(c.want, turnlog.ConsequenceOf(c.outcome)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
