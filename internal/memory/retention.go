package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/retention"
)

// A Keeper deletes what is stored of closed messages by age.
type Keeper struct{ Conn *Conn }

// Expire deletes a class of what is stored of the turns whose messages were closed for at least a time, and returns of
// how many. What was deleted before is not counted.
func (k Keeper) Expire(ctx context.Context, class retention.Class, kept time.Duration) (turns int, err error) {
	c := k.Conn
	err = c.ask(ctx, "expire", func() error {
		return c.store.locked(func(*[]Bell) error {
			s, now := &c.store.state, c.store.now()
			for _, t := range s.turns {
				m := s.message(t.MessageID)
				if m.ClosedAt.IsZero() || m.ClosedAt.After(now.Add(-kept)) {
					continue
				}
				gone, err := expire(s, t, class, now)
				if err != nil {
					return err
				}
				if gone {
					turns++
				}
			}
			return nil
		})
	})
	return turns, err
}

// expire deletes a class of a closed turn, and reports whether anything was there.
func expire(s *state, t *turnRow, class retention.Class, now time.Time) (gone bool, err error) {
	d := t.draft()
	switch class {
	case retention.Outputs:
		gone = d.expireOutputs(now)
	case retention.Events:
		gone = d.expireEvents(now)
	case retention.Leases:
		if gone = d.LeasesExpiredAt.IsZero(); gone {
			d.LeasesExpiredAt = now
			expireGrants(s, t)
		}
	default:
		err = fmt.Errorf("unknown class %q", class)
	}
	s.turns[t.ID-1] = d
	return gone, err
}

func (t *turnRow) expireOutputs(now time.Time) (gone bool) {
	for i := range t.outputs {
		o := &t.outputs[i]
		if !o.ExpiredAt.IsZero() {
			continue
		}
		gone = true
		o.ExpiredAt, o.Text = now, ""
		if o.Bytes != nil {
			o.Bytes = []byte{}
		}
	}
	return gone
}

func (t *turnRow) expireEvents(now time.Time) (gone bool) {
	if !t.EventsExpiredAt.IsZero() {
		return false
	}
	t.EventsExpiredAt = now
	if n := len(t.events); n > 1 {
		last := t.events[n-1]
		data, _ := json.Marshal(turnevents.EventsExpiredData{First: 1, Last: last.Seq - 1}) // two numbers
		t.events = []turnkeeper.Event{{TurnID: t.ID, Seq: last.Seq - 1, Type: turnevents.EventsExpired, Data: data,
			At: last.At}, last}
	}
	return true
}

// expireGrants deletes the log of a turn's grants, and the leases of their lanes if nothing uses these any more.
func expireGrants(s *state, t *turnRow) {
	lanes := map[turnkeeper.Lane]bool{}
	s.grants = slices.DeleteFunc(s.grants, func(g *grantRow) bool {
		if g.TurnID == t.ID {
			lanes[g.Lane] = true
		}
		return g.TurnID == t.ID
	})
	s.writes = slices.DeleteFunc(s.writes, func(w writeRow) bool { return w.turn == t.ID })
	for lane := range lanes {
		l := s.leases[lane]
		if l != nil && !l.Held() && s.open[lane] == nil && len(s.waiting[lane]) == 0 {
			delete(s.leases, lane)
		}
	}
}
