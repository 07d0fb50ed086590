package turnctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
)

// request prints how a round's request used the context window, and what was
// omitted to make it fit.
func (p *turnPage) request(r *turnkeeper.Recipe) {
	if r == nil {
		return
	}
	w := r.Window
	text := fmt.Sprintf("request ~%s of %s tokens (window %s, less %s for the answer and %s for safety)",
		count(w.Corrected()), count(w.Room()),
		count(w.Size), count(w.Answer), count(w.Safety))
	if w.Reported > 0 {
		text += fmt.Sprintf(", the provider counted %s", term.Thousands(w.Reported))
	}
	p.dimmed(text)
	parts := []string{
		"system " + count(w.System), "tools " + count(w.Tools), "earlier turns " + count(w.History), "this turn " +
			count(w.Turn),
		"notice " + count(w.Notice),
	}
	if w.Factor != 1 {
		parts = append(parts, fmt.Sprintf("corrected by %.2f", w.Factor))
	}
	p.dimmed(strings.Join(parts, " · "))
	p.fitted(r)
}

func (p *turnPage) fitted(r *turnkeeper.Recipe) {
	if r.Start != nil {
		p.epoch(*r.Start)
	}
	if r.Cut {
		p.Line("     %s",
			p.Paint(term.Warned,
				"the provider seems to have truncated this request: it counted far fewer tokens than were sent"))
	}
}

// epoch prints why the request does not extend the one before it, and what it leaves out.
func (p *turnPage) epoch(e turnkeeper.Epoch) {
	if why := prompt.Why(e); why != "" {
		p.dimmed("new epoch: " + why)
	}
	var done []string
	if e.Dropped != "" {
		done = append(done, "results not shown: calls "+e.Dropped)
	}
	if e.LeanPast != 0 {
		done = append(done, fmt.Sprintf("earlier results not shown: to turn %d", e.LeanPast))
	}
	if e.Omitted > 0 {
		done = append(done, term.Plural(e.Omitted, "earlier turn")+" not shown")
	}
	if e.Summary != 0 {
		done = append(done, fmt.Sprintf("summary to turn %d", e.Summary))
	}
	if len(done) > 0 {
		p.dimmed("fitted: " + strings.Join(done, " · "))
	}
	if e.Room > 0 {
		p.Line("     %s", p.Paint(term.Warned, fmt.Sprintf(
			"shortened to %s tokens: the provider had refused a longer request", count(e.Room))))
	}
	if note := prompt.RecordNote(e); note != "" {
		p.Line("     %s", p.Paint(term.Warned, note))
	}
}

func (p *turnPage) dimmed(text string) {
	for _, line := range term.Wrap(text, p.Readable()-6) {
		p.Line("     %s", p.Paint(term.Dim, line))
	}
}

func count(n int) string { return term.Thousands(int64(n)) }

// sentView is the JSON output for a rebuilt request.
type sentView struct {
	TurnID     turnkeeper.TurnID `json:"turn_id"`
	Round      int               `json:"round"`
	Exact      bool              `json:"exact"`
	SHA256     string            `json:"sha256"`
	SentSHA256 string            `json:"sent_sha256"`
	Body       string            `json:"body"`
	Compared   *comparedView     `json:"compared"` // null: there is no request before it, or it cannot be rebuilt
}

// comparedView is the JSON output for a comparison with the request before.
type comparedView struct {
	TurnID   turnkeeper.TurnID `json:"turn_id"`
	Round    int               `json:"round"`
	Repeated int               `json:"repeated_messages"`
	Differs  *differsView      `json:"first_difference"` // null: the request begins with the whole other one
}

// differsView is the JSON output for the first place where two requests differ.
type differsView struct {
	Kind   prompt.DivergenceKind `json:"kind"`
	Number int                   `json:"number"`
	Name   string                `json:"name"`
	Byte   int                   `json:"byte"`
	Before string                `json:"before"`
	After  string                `json:"after"`
}

func comparedOf(c *prompt.Comparison, part excerpter) *comparedView {
	if c == nil {
		return nil
	}
	view := &comparedView{TurnID: c.Turn, Round: c.Round, Repeated: c.Repeated}
	if d := c.Differs; d != nil {
		before, after := d.Excerpts(part)
		view.Differs = &differsView{d.Kind, d.Number, d.Name, d.Byte, before, after}
	}
	return view
}

// An excerpter returns a part of a text, with its secrets masked.
type excerpter = func(text string, from, to int) string

// showRequest prints only the request of a round, as it was sent.
func showRequest(ctx context.Context, s *shell.Session, turn turnArg, round int) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		view, err := findTurn(ctx, db.Store, turn)
		if err != nil {
			return err
		}
		requests, err := setup.OpenRequests(ctx, db.Store, view.Turn.ID)
		var sent prompt.Sent
		if err == nil {
			sent, err = requests.Sent(ctx, round)
		}
		switch {
		case errors.Is(err, prompt.ErrNoRound):
			return shell.NotFound("turn %d has no answered round %d: it has %d", view.Turn.ID, round, len(view.Rounds))
		case err != nil:
			return fmt.Errorf("cannot rebuild the request of round %d of turn %d: %w", round, view.Turn.ID, err)
		}
		if err := printRequest(ctx, s, requests, sent); err != nil || sent.Exact {
			return err
		}
		return shell.Exit(shell.ExitFailure, fmt.Errorf(
			"this differs from the sent request: it has %d bytes and the SHA-256 %s, the sent one had %d and %s "+
				"(usually because a secret is masked in the database)", len(sent.Body), sent.SHA256, sent.Recipe.Bytes,
			sent.Recipe.SHA256))
	})
}

func printRequest(ctx context.Context, s *shell.Session, requests *setup.Requests, sent prompt.Sent) error {
	if !s.JSON() {
		_, err := s.Stdout.Write(sent.Body)
		return err
	}
	compared, err := requests.Compare(ctx, sent.Round)
	if ctx.Err() != nil {
		return err // other errors: the request before it cannot be rebuilt
	}
	return shell.WriteJSON(s.Stdout, sentView{sent.Turn, sent.Round, sent.Exact, sent.SHA256, sent.Recipe.SHA256,
		string(sent.Body), comparedOf(compared, s.Masker.Part)})
}
