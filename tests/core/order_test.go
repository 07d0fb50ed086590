package core_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// refuseOnce refuses the first request of each message whose body begins with "refused", as with a wrong key.
func refuseOnce() func(inferencetest.Recorded) inferencetest.Reply {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(r inferencetest.Recorded) inferencetest.Reply {
		mu.Lock()
		defer mu.Unlock()
		body := env.NewestMessage(r)
		if first := !seen[body]; first && strings.HasPrefix(body, "refused") {
			seen[body] = true
			return wrongKey
		}
		// others fail meanwhile
		return inferencetest.WaitFor(env.After(20*time.Millisecond), inferencetest.Text("Fine."))
	}
}

// TestALaneKeepsItsOrderOverFailures sends pairs of messages to agents with one lane each. The first of a pair fails
// with a fault of the service and waits again, while answers to other messages bring the model back. The second one is
// not granted before it.
func TestALaneKeepsItsOrderOverFailures(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.Model.Then(refuseOnce())
	const agents, pairs = 4, 4
	for a := range agents {
		e.WriteAgent(fmt.Sprint("clerk", a))
	}
	e.WriteAgent("desk", "lane: conversation")
	e.StartWorker()
	var senders sync.WaitGroup
	for a := range agents {
		senders.Go(func() {
			for p := range pairs {
				env.Query[int64](e, `select max(turnkeeper.enqueue($1, b)) from unnest(array[$2, $3]) b`,
					fmt.Sprint("clerk", a), fmt.Sprintf("refused %d-%d", a, p), fmt.Sprintf("second %d-%d", a, p))
				for i := range 10 {
					env.Query[int64](e, "select turnkeeper.enqueue('desk', 'x', $1)", fmt.Sprintf("%d-%d-%d", a, p, i))
				}
				e.Await("the pair is closed",
					"select not exists (select from messages where agent = $1 and closed_at is null)",
					fmt.Sprint("clerk", a))
			}
		})
	}
	senders.Wait()
	overtaken := env.Query[int](e,
		`select count(*) from messages a join messages b on b.lane = a.lane and b.id > a.id join turns t on t.message_id = b.id
		where a.agent <> 'desk' and t.created_at < a.closed_at`)
	if retried := env.Query[int](e, "select count(*) from messages where attempts >= 2"); overtaken != 0 ||
		retried < agents*pairs {
		t.Errorf(
			"%d turns began before an older message of their lane was closed; %d messages were tried again, want at least %d", overtaken, retried, agents*pairs)
	}
}

// TestOneAgentLeavesSlotsToOthers lets the messages of one agent wait for a model that does not answer. They do not
// take the slots that another agent's message needs, and no more than the agent's max_running.
func TestOneAgentLeavesSlotsToOthers(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	release := make(chan struct{})
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "quick" {
			return inferencetest.Text("Fine.")
		}
		return inferencetest.WaitFor(release, inferencetest.Text("Fine."))
	})
	e.WriteAgent("busy", "lane: conversation")
	e.WriteAgent("bounded", "lane: conversation", "max_running: 1")
	e.WriteAgent("calm")
	e.StartWorker("--worker-slots", "8")
	t.Cleanup(func() { close(release) }) // before the worker is stopped, which waits for its turns
	e.PauseScheduler("until all are there")
	for i := range 20 {
		env.Query[int64](e, "select turnkeeper.enqueue('busy', 'slow', $1)", fmt.Sprint(i))
		env.Query[int64](e, "select turnkeeper.enqueue('bounded', 'slow', $1)", fmt.Sprint(i))
	}
	quick := e.Send("calm", "quick")
	e.ResumeScheduler()
	e.AwaitClosed(quick)
	for agent, want := range map[string]int{"busy": 6, "bounded": 1} {
		e.Await("turns of "+agent+" run", "select count(*) >= $2 from turns where agent = $1 and state = 'running'",
			agent, want)
	}
	if n := env.Query[int](e, "select count(*) from turns where agent = 'bounded'"); n != 1 {
		t.Errorf("%d turns of the agent with max_running 1 began", n)
	}
}
