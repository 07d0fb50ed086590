package page

import (
	"slices"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
	"turnkeeper/storage/operate"
)

func texts[S ~string](states ...S) (all []string) {
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}

// TestEveryStateHasALook checks that the page knows each state that it can show, and that what is down or has failed is
// not grey.
func TestEveryStateHasALook(t *testing.T) {
	t.Parallel()
	down := modelhealth.Health{Model: "p/m", Agents: []string{"a"}}.Fail(modelhealth.Failure{},
		turnkeeper.Turn{}.CreatedAt.AddDate(2000, 0, 0))
	for _, state := range slices.Concat(request.TurnStates, request.MessageStates, request.AskStates,
		request.DeliveryStates,
		texts(turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning, turnkeeper.CallSucceeded,
			turnkeeper.CallFailed, turnkeeper.CallSkipped,
			turnkeeper.CallDenied, turnkeeper.CallUnknown, turnkeeper.CallCancelled),
		texts(presence.Alive, presence.Serving, presence.Draining, presence.Silent, presence.Stopped),
		texts(operate.WebhookStates...),
		texts(survival.Levels...), texts(diagnosis.Verdicts...), []string{down.State(), "up", "probing", "unused",
			"unknown", "sending"},
		[]string{"finished", "lost", "handed_back", "deferred", "unclaimed", "waiting"}) { // ends of dispatches
		if _, known := looks[state]; !known {
			t.Errorf("the page does not know the state %q", state)
		}
	}
	for _, state := range []string{down.State(), string(presence.Silent), "dead", "failing", "no_worker", "failed",
		"fail", "lost", "critical"} {
		if tone(state) != "bad" {
			t.Errorf("%q looks %s", state, tone(state))
		}
	}
	if tone("later") != "idle" {
		t.Error("an unknown state has a colour")
	}
}
