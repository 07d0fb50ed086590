package jobs_test

import (
	"encoding/json"
	"testing"

	"turnkeeper"
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

// TestJobOfADetachedCall checks that River ends no run before its own limit, and that it takes no job for stuck whose
// call may still run: its timeout is longer than any limit.
func TestJobOfADetachedCall(t *testing.T) {
	args := jobs.CallArgs{TurnID: 7, Round: 2, Ordinal: 3, Attempt: 4}
	text, err := json.Marshal(args)
	if err != nil || string(text) != `{"turn_id":7,"round":2,"ordinal":3,"attempt":4}` {
		t.Errorf("the arguments are %s, %v", text, err)
	}
	if opts := args.InsertOpts(); args.Kind() != "DetachedCall" || opts.MaxAttempts != 1 {
		t.Errorf("kind %s, %+v", args.Kind(), opts)
	}
	if timeout := (&jobs.CallWorker{}).Timeout(nil); timeout <= turnkeeper.MaxDetached {
		t.Errorf("the timeout is %s; a run may take %s", timeout, turnkeeper.MaxDetached)
	}
}
