package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
)

// TestShares lists ready work in order, by the first letter of its agent, and says which of it a tick grants.
func TestShares(t *testing.T) {
	for name, c := range map[string]struct {
		room    int
		running string // an agent for each running turn
		ready   string // in order; a digit after the agent is its MaxRunning
		lost    string // agents whose running turn is lost
		want    string
	}{
		"one agent takes all slots":          {room: 4, ready: "a a a a a", want: "a a a a"},
		"three quarters while others wait":   {room: 4, ready: "a a a a a b", want: "a a a b"},
		"what others leave":                  {room: 8, ready: "a a a a a a a a b", want: "a a a a a a b a"},
		"in the order of ranks":              {room: 8, ready: "b a a", want: "b a a"},
		"running turns count":                {room: 2, running: "a a a a a a", ready: "a a b", want: "b a"},
		"an agent above its share waits":     {room: 1, running: "a a a a a a a", ready: "a b", want: "b"},
		"with nobody else it takes the last": {room: 1, running: "a a a a a a a", ready: "a", want: "a"},
		"two agents":                         {room: 4, ready: "a a a a b b b b", want: "a a a b"},
		"one slot":                           {room: 1, ready: "a b", want: "a"},
		"two slots":                          {room: 2, ready: "a a b", want: "a b"},
		"max_running":                        {room: 8, ready: "a2 a2 a2 a2", want: "a2 a2"},
		"max_running, with running turns":    {room: 7, running: "a", ready: "a2 a2 a2 a2", want: "a2"},
		"max_running is reached":             {room: 6, running: "a a", ready: "a2 b", want: "b"},
		"max_running above three quarters":   {room: 4, ready: "a4 a4 a4 a4 b", want: "a4 a4 a4 a4"},
		"a lost turn frees its place":        {room: 1, running: "a", lost: "a", ready: "a1", want: "a1"},
		"many agents at their bounds": {room: 9, ready: "a1 a1 b1 b1 c1 c1 d e f",
			want: "a1 b1 c1 d e f"},
		"beyond the share, behind others at theirs": {room: 4, ready: "a a a a b1 b1", want: "a a a b1"},
		"the rest goes to the lowest rank":          {room: 8, ready: "a a a a a a a b c b", want: "a a a a a a b c"},
		"work of a full agent hides nothing of mine": {room: 2, running: "a a a a a a", ready: strings.Repeat("a ",
			40) + "b", want: "b a"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.sit.FreeSlots, w.sit.Running = c.room, strings.Fields(c.running)
				for _, agent := range strings.Fields(c.lost) {
					w.lost = append(w.lost, granting.LostGrant{TurnID: 100, MessageID: 100,
						Lane: turnkeeper.Lane(agent), WorkerID: "dead"})
				}
				for i, text := range strings.Fields(c.ready) {
					r := granting.Candidate{
						New: true, MessageID: turnkeeper.MessageID(i + 1), Agent: text[:1],
						Lane: turnkeeper.Lane(fmt.Sprint(text[:1], "/", i)),
						Rank: time.Unix(int64(i), 0),
					}
					if len(text) > 1 {
						r.MaxRunning = int(text[1] - '0')
					}
					w.messages = append(w.messages, r)
				}
				w.tick(t, w.scheduler())
				granted := slices.DeleteFunc(slices.Concat(w.granted...), func(r granting.Candidate) bool {
					return !r.New
				})
				slices.SortFunc(granted, func(a, b granting.Candidate) int { return int(a.MessageID - b.MessageID) })
				want := map[string]int{}
				for _, text := range strings.Fields(c.want) {
					want[text[:1]]++
				}
				got := map[string]int{}
				for i, r := range granted {
					got[r.Agent]++
					if i > 0 && !granted[i-1].Rank.Before(r.Rank) {
						t.Errorf("granted out of order: %+v", granted)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("granted %v, want %v", got, want)
				}
			})
		})
	}
}
