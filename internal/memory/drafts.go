package memory

import (
	"context"
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
)

var _ toolrun.Drafts = (*Journal)(nil)

// A draft is a result that is still arriving.
type draft struct {
	turn  turnkeeper.TurnID
	grant turnkeeper.GrantID
	text  []byte
	bytes []byte
}

// WriteDraft writes a part of a result: see toolrun.Drafts.
func (j *Journal) WriteDraft(ctx context.Context, part turnlog.OutputPart) error {
	return patiently(ctx, func() error {
		return j.conn.ask(ctx, "draft", func() error {
			j.s.mu.Lock()
			defer j.s.mu.Unlock()
			j.writeDraft(part)
			return nil
		})
	})
}

// writeDraft appends a part. It ignores a part that it already has or that does not
// follow the last one, and a part of a result that is recorded already or whose grant
// is over.
func (j *Journal) writeDraft(part turnlog.OutputPart) {
	d := j.s.state.drafts[part.Output]
	if d == nil {
		if part.FirstByte != 0 || !j.s.state.runsUnder(j.grant.TurnID, j.grant.GrantID) || j.recorded(part.Output) {
			return
		}
		d = &draft{turn: j.grant.TurnID, grant: j.grant.GrantID}
		j.s.state.drafts[part.Output] = d
	}
	if d.grant == j.grant.GrantID && part.FirstByte == int64(len(d.text)+len(d.bytes)) {
		d.text, d.bytes = append(d.text, part.Text...), append(d.bytes, part.Bytes...)
	}
}

// recorded reports whether the turn has the result.
func (j *Journal) recorded(id turnkeeper.OutputID) bool {
	return slices.ContainsFunc(j.s.state.turn(j.grant.TurnID).outputs, func(o turnkeeper.Output) bool {
		return o.ID == id
	})
}

// DropDraft removes the parts of a result that will not be recorded.
func (j *Journal) DropDraft(ctx context.Context, id turnkeeper.OutputID) error {
	return j.conn.ask(ctx, "drop", func() error {
		j.s.mu.Lock()
		defer j.s.mu.Unlock()
		delete(j.s.state.drafts, id)
		return nil
	})
}

// SweepDrafts removes the parts of results that lost workers did not record.
func (c *Conn) SweepDrafts(ctx context.Context) error {
	return c.ask(ctx, "sweep", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		for id, d := range c.store.state.drafts {
			if !c.store.state.runsUnder(d.turn, d.grant) {
				delete(c.store.state.drafts, id)
			}
		}
		return nil
	})
}

// runsUnder reports whether a turn runs under the grant.
func (s *state) runsUnder(turn turnkeeper.TurnID, grant turnkeeper.GrantID) bool {
	row := s.turn(turn)
	return row != nil && row.State == turnkeeper.TurnRunning && row.GrantID == grant
}

// whole returns an output with its content. The content of a drafted output comes from its draft.
func (j *Journal) whole(o turnkeeper.Output) (turnkeeper.Output, error) {
	o.CreatedAt = j.s.now()
	if !o.Drafted {
		return o, nil
	}
	d := j.s.state.drafts[o.ID]
	if d == nil || d.grant != j.grant.GrantID {
		return o, fmt.Errorf("%w: the draft of output %s was deleted", turnkeeper.ErrJournalMoved, o.ID)
	}
	o.Drafted = false
	if o.Bytes != nil {
		o.Bytes = append([]byte{}, d.bytes...)
	} else {
		o.Text = string(d.text)
	}
	return o, nil
}

// finish removes the drafts of results that are recorded now.
func (s *state) finish(results []turnlog.CallResult) {
	for _, r := range results {
		if r.Output != nil && r.Output.Drafted {
			delete(s.drafts, r.Output.ID)
		}
	}
}
