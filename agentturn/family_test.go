package agentturn_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
)

// parent returns the call that a sub-agent's turn works for, nil for other turns.
func (c scene) parent(scenes []scene) *turnevents.ParentData {
	for _, p := range scenes {
		for _, call := range callsOf(p.rounds) {
			if c.Conversation == turnlog.SpawnConversation(p.ID, call.Key) {
				return &turnevents.ParentData{Turn: p.ID, Call: call.Key.String(), Root: scenes[0].ID}
			}
		}
	}
	return nil
}

// checkFamily checks what is the same, and what differs, in the turns of a play and their calls.
func (s *stage) checkFamily() {
	scenes, keys := s.scenes(), map[string]turnlog.CallRef{}
	for _, c := range scenes {
		var start turnevents.TurnStartData
		if c.StopReason == turnkeeper.StopWorkerLost && len(c.events) > 0 &&
			c.events[0].Type == turnkeeper.EventTurnComplete {
			continue // each of its workers was lost before it wrote anything
		}
		if len(c.events) == 0 || json.Unmarshal(c.events[0].Data, &start) != nil || !cmp.Equal(start.Parent,
			c.parent(scenes)) {
			s.fault("turn %d begins with the parent %+v, want %+v", c.ID, start.Parent, c.parent(scenes))
		}
	}
	for _, r := range s.runs {
		ref := turnlog.CallRef{TurnID: r.TurnID, Key: r.Key}
		if known, used := keys[r.IdempotencyKey]; used && known != ref || r.IdempotencyKey == "" {
			s.fault("%+v runs with the idempotency key %q, which is also that of %+v", ref, r.IdempotencyKey, known)
		}
		keys[r.IdempotencyKey] = ref
	}
	if s.uncertain() {
		return
	}
	o := foretell(s.play)
	for _, r := range s.runs {
		l := s.lineOf(r.TurnID, r.Key)
		got := labelSet{}
		for _, mark := range r.Labels {
			got[mark.Label] = true
		}
		if !s.isDetached(l.tool) && got.String() != o.knew[l.n].String() {
			s.fault("%s runs with the labels %q, want %q", wireOf(l.n), got, o.knew[l.n])
		}
		if turn, _, _, _ := s.mem.Turn(r.TurnID); !s.isDetached(l.tool) && r.Lane != turn.Lane {
			s.fault("%s runs in lane %s, and its turn in %s", wireOf(l.n), r.Lane, turn.Lane)
		}
	}
}

// storedAs matches the line that names an attachment.
var storedAs = regexp.MustCompile(`\[a chart, stored as output (\w+): `)

// checkOutput checks that the content of a result is stored as its tool returned it, under the ids that the model is
// shown.
func (s *stage) checkOutput(c scene, call turnkeeper.ToolCall) {
	p := propOf(strings.TrimPrefix(call.Name, "server__"))
	if call.State != turnkeeper.CallSucceeded || p.gives == "" || strings.HasPrefix(call.Shown, "A person says") {
		return
	}
	id, want, mediaType := call.OutputID, []byte(nil), "text/plain"
	switch p.gives {
	case "long":
		want = []byte(strings.Repeat(call.WireID+" says nothing of note. ", 2800))
	case "binary":
		want, mediaType = []byte("\x89PNG of "+call.WireID), "image/png"
	case "attached":
		want, mediaType = []byte("chart of "+call.WireID), "image/svg+xml"
		text := call.Shown
		if id != "" { // the model reads it by its handle
			text = must(s.conn.ReadOutput(context.Background(), c.ID, id, 0, 10_000))
		}
		named := storedAs.FindStringSubmatch(text)
		if named == nil {
			s.fault("the result of %s names no attachment: %q", call.WireID, text)
			return
		}
		id = turnkeeper.OutputID(named[1])
	}
	o, err := s.conn.DescribeOutput(context.Background(), c.ID, id)
	if err != nil || o.MediaType != mediaType || o.SHA256 != outputs.SHA256(string(want)) || o.Call != call.Key ||
		o.TurnID != c.ID ||
		o.SizeBytes != int64(len(want)) || o.RawBytes != int64(len(want)) || o.Incomplete {
		s.fault("the output %s of %s is stored as %+v, %v", id, call.WireID, o, err)
	}
	if p.gives == "long" {
		text, err := s.conn.ReadOutput(context.Background(), c.ID, id, 0, o.Chars)
		if o.Chars != int64(len(want)) || text != string(want) || err != nil {
			s.fault("the output %s of %s reads otherwise than it was returned: %v", id, call.WireID, err)
		}
	}
	if slices.Contains([]string{"long", "binary"}, p.gives) && call.OutputID == "" {
		s.fault("%s has no output", call.WireID)
	}
}
