package operate_test

import (
	"context"
	"testing"

	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestAPurgeForgetsLanes purges conversations. Those with open work keep their lanes. The names of
// the other lanes are removed. If such a lane is used again, its tokens continue.
func TestAPurgeForgetsLanes(t *testing.T) {
	h := newEnv(t)
	turn := func(conversation string) *storagetest.Dispatch {
		h.Submit("desk", conversation, "x")
		return h.Dispatch("w")[0]
	}
	var token int64
	for range 3 {
		d := turn("a name")
		token = d.Grant.Token
		d.Finish(t, "done")
	}
	turn("waits").Finish(t, "done")
	turn("kept").Finish(t, "done")
	turn("runs")
	h.Submit("desk", "waits", "x")
	lanes := func() string {
		return storagetest.One[string](h, "select string_agg(lane, ', ' order by lane) from turnkeeper.leases")
	}
	for _, step := range []struct {
		scope operate.PurgeScope
		want  string
	}{
		{operate.PurgeScope{Agent: "desk", Conversation: "a name", Dry: true}, "desk/a name, desk/kept, desk/runs, desk/waits"},
		{operate.PurgeScope{Agent: "clerk"}, "desk/a name, desk/kept, desk/runs, desk/waits"},
		{operate.PurgeScope{Agent: "desk", Conversation: "a name"}, "desk/kept, desk/runs, desk/waits"},
		{operate.PurgeScope{}, "desk/runs, desk/waits"},
	} {
		if _, err := h.Purge(t.Context(), step.scope); err != nil {
			t.Fatal(err)
		}
		if got := lanes(); got != step.want {
			t.Errorf("after %+v the lanes are %s, want %s", step.scope, got, step.want)
		}
	}
	h.Submit("desk", "a name", "x")
	for _, d := range h.Dispatch("w") {
		if d.Record.Turn.Lane == "desk/a name" && d.Grant.Token <= token {
			t.Errorf("the lane's token is %d after %d", d.Grant.Token, token)
		}
	}
}

// A gentle purge deletes the same as any other, and ends with its context.
func TestAGentlePurge(t *testing.T) {
	h := newEnv(t)
	h.Exec(`insert into turnkeeper.messages (agent, lane, body, state, closed_at)
		select 'clerk', 'clerk', 'x', 'failed', now() - interval '1 day' from generate_series(1, 250)`)
	ended, stop := context.WithCancel(t.Context())
	stop()
	if done, err := h.Purge(ended, operate.PurgeScope{Gently: true}); err == nil || done.Messages > 100 {
		t.Errorf("after its end it deleted %d messages: %v", done.Messages, err)
	}
	if done, err := h.Purge(t.Context(), operate.PurgeScope{Gently: true}); err != nil || done.Messages != 250 {
		t.Errorf("%d messages deleted: %v", done.Messages, err)
	}
}
