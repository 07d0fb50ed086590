package storage_test

import (
	"testing"

	"turnkeeper/storage"
)

// TestAPurgeForgetsLanes purges conversations: those of which something is open keep their lanes, and the names of the
// others are gone. The tokens of a lane that comes again go on.
func TestAPurgeForgetsLanes(t *testing.T) {
	h := newHouse(t)
	turn := func(conversation string) *dispatch {
		h.enqueue("desk", conversation, "x")
		return h.dispatch("w")[0]
	}
	var token int64
	for range 3 {
		d := turn("a name")
		token = d.grant.Token
		d.finish(t, "done")
	}
	turn("waits").finish(t, "done")
	turn("kept").finish(t, "done")
	turn("runs")
	h.enqueue("desk", "waits", "x")
	lanes := func() string {
		return one[string](h, "select string_agg(lane, ', ' order by lane) from turnkeeper.leases")
	}
	for _, step := range []struct {
		scope storage.PurgeScope
		want  string
	}{
		{storage.PurgeScope{Agent: "desk", Conversation: "a name", Dry: true}, "desk/a name, desk/kept, desk/runs, desk/waits"},
		{storage.PurgeScope{Agent: "clerk"}, "desk/a name, desk/kept, desk/runs, desk/waits"},
		{storage.PurgeScope{Agent: "desk", Conversation: "a name"}, "desk/kept, desk/runs, desk/waits"},
		{storage.PurgeScope{}, "desk/runs, desk/waits"},
	} {
		if _, err := h.Purge(t.Context(), step.scope); err != nil {
			t.Fatal(err)
		}
		if got := lanes(); got != step.want {
			t.Errorf("after %+v the lanes are %s, want %s", step.scope, got, step.want)
		}
	}
	h.enqueue("desk", "a name", "x")
	for _, d := range h.dispatch("w") {
		if d.record.Turn.Lane == "desk/a name" && d.grant.Token <= token {
			t.Errorf("the lane's token is %d after %d", d.grant.Token, token)
		}
	}
}
