package turnctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func outputCommand(s *shell.Session) *cobra.Command {
	var slice string
	var raw bool
	cmd := &cobra.Command{
		Use: "output ID", Short: "Show a stored tool result in full", Args: shell.ExactArgs(1),
		Long: `Show a tool result as the tool returned it (cleaned, and cut at 10 MB): its size, its
hash, how often the model read it again, what the model was shown in its place, and
the text. "turnctl show" lists the outputs of a turn. A result that the model was
shown in full has no output. Of one that retention has deleted, it says so, with exit
code 3; with -o json its content is null.`,
		Example: `  turnctl output k3v9x2m4q7ab
  turnctl output k3v9x2m4q7ab --slice 4000:8000
  turnctl output k3v9x2m4q7ab --raw > result.bin`,
		RunE: func(cmd *cobra.Command, args []string) error {
			span, err := parseSpan(slice)
			if err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				return showOutput(cmd.Context(), s, db.Store, turnkeeper.OutputID(args[0]), span, raw)
			})
		},
	}
	cmd.Flags().StringVar(&slice, "slice", "", "only the characters A:B; either may be omitted")
	cmd.Flags().BoolVar(&raw, "raw", false, "only the exact content")
	return cmd
}

// A span is a part of a text, in characters; to 0: to the end.
type span struct{ from, to int64 }

func parseSpan(text string) (p span, err error) {
	if text == "" {
		return p, nil
	}
	from, to, found := strings.Cut(text, ":")
	for _, end := range []struct {
		text string
		to   *int64
	}{{from, &p.from}, {to, &p.to}} {
		if end.text != "" && err == nil {
			*end.to, err = strconv.ParseInt(end.text, 10, 64)
		}
	}
	if !found || err != nil || p.from < 0 || p.to < 0 || to != "" && p.to < p.from {
		return span{}, shell.Misused("--slice is %q: it must be A:B, two character positions, with A not above B", text)
	}
	return p, nil
}

// storedView is the JSON output for a tool result.
type storedView struct {
	views.Output
	Turn    turnkeeper.TurnID `json:"turn_id"`
	Content *string           `json:"content"` // null: binary, or it has expired
	Shown   string            `json:"shown"`   // what the model was shown
}

func showOutput(ctx context.Context, s *shell.Session, store *operate.Store, id turnkeeper.OutputID, p span,
	raw bool) error {
	o, err := store.FindOutput(ctx, id)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return shell.NotFound(`there is no output %q: "turnctl show" lists those of a turn`, string(id))
	}
	if err != nil {
		return err
	}
	if !o.ExpiredAt.IsZero() && (raw || !s.JSON()) {
		return shell.NotFound("%s", words.ExpiredOutput(o, s.Clock().Moment))
	}
	if raw && o.Bytes != nil {
		return writeBinary(ctx, s, store, id)
	}
	text, err := p.of(ctx, store, o)
	if err != nil && o.ExpiredAt.IsZero() {
		return err
	}
	if raw {
		_, err := s.Stdout.Write([]byte(text))
		return err
	}
	shown, err := shownFor(ctx, store, o)
	if err != nil {
		return err
	}
	view := storedView{Output: views.OfOutput(o), Turn: o.TurnID, Shown: shown}
	if o.Bytes == nil && o.ExpiredAt.IsZero() {
		view.Content = &text
	}
	return s.Print(view, func() { output(s.Out, o, text, shown) })
}

// of returns the part of a text, or "" for binary content.
func (p span) of(ctx context.Context, store *operate.Store, o turnkeeper.Output) (string, error) {
	if o.Bytes != nil {
		return "", nil
	}
	if p.to == 0 {
		p.to = o.Chars
	}
	return store.ReadOutput(ctx, o.TurnID, o.ID, p.from, p.to)
}

func writeBinary(ctx context.Context, s *shell.Session, store *operate.Store, id turnkeeper.OutputID) error {
	o, err := store.Output(ctx, id)
	if err == nil {
		_, err = s.Stdout.Write(o.Bytes)
	}
	return err
}

// shownFor returns what the model was shown as the result of the output's call.
func shownFor(ctx context.Context, store *operate.Store, o turnkeeper.Output) (string, error) {
	view, err := store.ViewTurn(ctx, o.TurnID)
	if err != nil {
		return "", err
	}
	for _, round := range view.Rounds {
		for _, call := range round.Calls {
			if call.Key == o.Call {
				return call.Shown, nil
			}
		}
	}
	return "", nil
}

func output(s *term.Screen, o turnkeeper.Output, text, shown string) {
	whole := ""
	if o.Incomplete {
		whole = fmt.Sprintf(", the beginning of %s", term.Plural(int(o.RawBytes), "byte"))
	}
	s.Line("output %s of turn %d, %s", o.ID, o.TurnID, o.Call)
	s.Line("  type       %s", term.OneLine(o.MediaType, 0))
	s.Line("  size       %s, %s, about %s%s", term.Plural(int(o.SizeBytes), "byte"), term.Plural(int(o.Chars),
		"character"), term.Plural(int(o.Tokens), "token"), whole)
	s.Line("  sha256     %s", o.SHA256)
	s.Line("  read again %s", term.Plural(int(o.Retrieved), "time"))
	s.Line("  the model was shown")
	for line := range strings.Lines(term.Plain(shownEnds(shown))) {
		s.Line("%s", strings.TrimRight("    "+line, " \n"))
	}
	s.Line("")
	if o.Bytes != nil {
		s.Line("%s", s.Paint(term.Dim, "binary content: --raw writes it to standard output"))
		return
	}
	s.Line("%s", term.Plain(text))
}

// shownEnds returns the beginning and the end of what the model was shown. The
// end says what was cut.
func shownEnds(shown string) string {
	const ends = 300
	chars := []rune(shown)
	if len(chars) <= 2*ends {
		return shown
	}
	return string(chars[:ends]) + "\n…\n" + string(chars[len(chars)-ends:])
}
