package jobs_test

import (
	"encoding/json"
	"testing"

	"turnkeeper/internal/bounds"
	"turnkeeper/jobs"
)

// TestJobOfATurn checks what the job of a turn is: ids, one attempt, and a timeout that ends no turn
// before its wall cap, nor after its lease.
func TestJobOfATurn(t *testing.T) {
	args := jobs.TurnArgs{TurnID: 7, GrantID: "g"}
	if text, err := json.Marshal(args); err != nil || string(text) != `{"turn_id":7,"grant_id":"g"}` {
		t.Errorf("the arguments are %s, %v", text, err)
	}
	if opts := args.InsertOpts(); args.Kind() != "AgentTurn" || opts.MaxAttempts != 1 {
		t.Errorf("kind %s, %+v", args.Kind(), opts)
	}
	bounds := bounds.Default()
	timeout := (&jobs.Worker{WorkerConfig: jobs.WorkerConfig{Bounds: bounds}}).Timeout(nil)
	if longest := bounds.LeaseTTL - bounds.Margin; timeout < longest || timeout >= bounds.LeaseTTL {
		t.Errorf("the timeout is %s; a turn may take %s, and its lease %s", timeout, longest, bounds.LeaseTTL)
	}
}
