package turnctl

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
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
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func webhooksCommand(s *shell.Session) *cobra.Command {
	look := func(ctx context.Context, store *operate.Store) ([]operate.WebhookView, error) {
		return store.Webhooks(ctx)
	}
	show := func(cmd *cobra.Command, _ []string) error {
		return list(s, cmd, look, views.OfWebhook, showWebhooks, "no webhooks: no worker has one in its settings")
	}
	cmd := &cobra.Command{
		Use: "webhooks", Short: "List webhooks and their deliveries, and redeliver", Args: cobra.NoArgs,
		Long: `List the webhook endpoints that replies and asks are pushed to, with pending and dead
deliveries; and redeliver. Configure endpoints in the workers' settings (webhooks: in
the config file); only these have the full address, this command shows its origin.`,
		Example: `  turnctl webhooks
  turnctl webhooks show shop --state dead
  turnctl webhooks redeliver shop --dead`,
		RunE: show,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List webhooks", Args: cobra.NoArgs, RunE: show,
			Example: "  turnctl webhooks list -o json"},
		showWebhookCommand(s), redeliverCommand(s), pauseWebhookCommand(s),
		changeWebhook(s, "resume NAME", "Resume a webhook; pending deliveries start over", "resumed",
			func(ctx context.Context, store *operate.Store, name string) error {
				return store.ResumeWebhook(ctx, name)
			}),
		changeWebhook(s, "remove NAME", "Remove a webhook that no worker has any more, with its deliveries", "removed",
			func(ctx context.Context, store *operate.Store, name string) error {
				return store.RemoveWebhook(ctx, name)
			}),
		&cobra.Command{
			Use: "secret", Short: "Print a new signing secret", Args: cobra.NoArgs,
			Long: `Print a new secret for a webhook: for secret_env or secret_file in the settings,
and for the receiver. It is not stored.`,
			Example: "  turnctl webhooks secret > shop.secret",
			RunE: func(*cobra.Command, []string) error {
				secret := make([]byte, 32)
				_, _ = rand.Read(secret) // it never fails
				text := config.WebhookSecretPrefix + base64.StdEncoding.EncodeToString(secret)
				return s.Print(map[string]string{"secret": text}, func() { s.Out.Line("%s", text) })
			},
		},
	)
	return cmd
}

func showWebhooks(s *term.Screen, c term.Clock, all []operate.WebhookView) {
	t := term.NewTable("WEBHOOK", "STATE", ">PENDING", ">DEAD", "OLDEST", "LAST SUCCESS", "LAST FAILURE", "AGENTS",
		"ORIGIN", "LAST ERROR")
	for _, w := range all {
		oldest := "-"
		if w.Pending > 0 {
			oldest = term.Coarse(w.Oldest)
		}
		dead := term.Cell{Text: term.Thousands(int64(w.Dead))}
		if w.Dead > 0 {
			dead.Tone = term.Bad
		}
		t.Add(w.Name, webhookState(w), term.Thousands(int64(w.Pending)), dead, oldest, c.Ago(w.SucceededAt),
			c.Ago(w.FailedAt), agentsOf(w.Webhook), w.Origin, term.OrDash(w.LastError))
	}
	t.Print(s)
}

func agentsOf(w outbox.Webhook) string {
	if w.Agents == nil {
		return "all"
	}
	return strings.Join(w.Agents, ", ")
}

// webhookState returns the state of a webhook.
func webhookState(w operate.WebhookView) term.Cell {
	tones := map[operate.WebhookState]term.Tone{operate.WebhookActive: term.Good, operate.WebhookUnserved: term.Bad}
	return term.Cell{Text: words.State(w.State()), Tone: cmp.Or(tones[w.State()], term.Warned)}
}

func showWebhookCommand(s *shell.Session) *cobra.Command {
	var flags pageFlags
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a webhook and its deliveries, newest first", Args: shell.ExactArgs(1),
		Example: `  turnctl webhooks show shop
  turnctl webhooks show shop --state dead --limit 100 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := flags.page(deliveryStates...)
			if err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				w, err := db.Store.Webhook(cmd.Context(), args[0])
				if err != nil {
					return webhookError(args[0], err)
				}
				if err := flags.known(cmd.Context(), db.Store); err != nil {
					return err
				}
				deliveries, err := db.Store.Deliveries(cmd.Context(), args[0], page)
				if err != nil {
					return err
				}
				view := webhookPage{views.OfWebhook(w), views.All(deliveries, views.OfDelivery)}
				return s.Print(view, func() { showWebhook(s.Out, s.Clock(), w, deliveries) })
			})
		},
	}
	flags.add(cmd, strings.Join(deliveryStates, ", "))
	flags.addUser(cmd)
	flags.addBefore(cmd)
	cmd.Flags().Lookup("before").Usage = "only deliveries with ids (as in -o json) below this one: the next page"
	return cmd
}

var deliveryStates = []string{string(outbox.DeliveryPending), string(outbox.DeliveryDelivered),
	string(outbox.DeliveryDead)}

// webhookPage is a webhook with some of its deliveries.
type webhookPage struct {
	views.Webhook
	Deliveries []views.Delivery `json:"deliveries"`
}

func showWebhook(s *term.Screen, c term.Clock, w operate.WebhookView, deliveries []outbox.Delivery) {
	state := webhookState(w)
	s.Line("%s  %s, to %s", s.Paint(term.Bold, "webhook "+w.Name), s.Paint(state.Tone, state.Text),
		term.Plain(w.Origin))
	what := "replies"
	if w.Asks {
		what = "replies and asks"
	}
	s.Line("%s of %s, since %s", what, agentsOf(w.Webhook), c.At(w.AddedAt))
	s.Line("%d pending, %d of them being sent, %d dead", w.Pending, w.Sending, w.Dead)
	if !w.PausedAt.IsZero() {
		s.Line("paused %s: %s", c.Ago(w.PausedAt), term.OneLine(w.PausedReason, 0))
	}
	if !w.Served() {
		s.Line("no worker has it in its settings; one last had it %s", c.Ago(w.SeenAt))
	}
	if w.LastError != "" {
		s.Line("last error, %s: %s", c.Ago(w.FailedAt), term.OneLine(w.LastError, 0))
	}
	if len(deliveries) == 0 {
		s.Line("no deliveries")
		return
	}
	s.Line("")
	t := term.NewTable("DELIVERY", "STATE", ">ATTEMPTS", "WRITTEN", "LAST ATTEMPT", "NEXT", ">STATUS", "AGENT",
		">TURN", "ERROR")
	for _, d := range deliveries {
		t.Add(d.WebhookID(), deliveryCell(d), fmt.Sprint(d.Attempts), c.At(d.WrittenAt), c.Ago(d.LastAt), nextOf(c, d),
			term.OrDash(strings.TrimPrefix(strconv.Itoa(d.Status), "0")), d.Agent, fmt.Sprint(d.TurnID),
			term.OrDash(d.Error))
	}
	t.Print(s)
}

func deliveryCell(d outbox.Delivery) term.Cell {
	switch {
	case d.Sending:
		return term.Cell{Text: "sending", Tone: term.Active}
	case d.State == outbox.DeliveryDelivered:
		return term.Cell{Text: string(d.State), Tone: term.Good}
	case d.State == outbox.DeliveryDead:
		return term.Cell{Text: string(d.State), Tone: term.Bad}
	case d.Attempts > 0:
		return term.Cell{Text: string(d.State), Tone: term.Warned}
	default:
		return term.Cell{Text: string(d.State), Tone: term.Dim}
	}
}

func nextOf(c term.Clock, d outbox.Delivery) string {
	if d.Sending {
		return "-"
	}
	return c.Ago(d.DueAt)
}

func redeliverCommand(s *shell.Session) *cobra.Command {
	var dead bool
	cmd := &cobra.Command{
		Use: "redeliver NAME [REPLY...]", Short: "Deliver replies again, or all dead deliveries",
		Args: cobra.MinimumNArgs(1),
		Long: `Deliver replies to a webhook again, with the same webhook-id and body; also replies
that are older than the webhook. With --dead, redeliver all dead deliveries. A
receiver that stores webhook-ids ignores what it already has.

` + shell.ExitHelp + `
  6  the reply is being delivered`,
		Example: `  turnctl webhooks redeliver shop 17 18
  turnctl webhooks redeliver shop --dead`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := replyIDs(args[1:])
			if err != nil {
				return err
			}
			if dead == (len(ids) > 0) {
				return shell.Misused("give ids of replies, or --dead")
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				n, err := redeliver(cmd.Context(), db.Store, args[0], ids)
				if err != nil {
					return err
				}
				return s.Print(map[string]int{"redelivering": n}, func() { s.Out.Line("deliveries enqueued: %d", n) })
			})
		},
	}
	cmd.Flags().BoolVar(&dead, "dead", false, "all dead deliveries")
	return cmd
}

func replyIDs(args []string) (ids []turnkeeper.ReplyID, err error) {
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, shell.Misused("%q is not a reply id: \"turnctl outbox\" lists them", arg)
		}
		ids = append(ids, turnkeeper.ReplyID(id))
	}
	return ids, nil
}

// redeliver enqueues the deliveries of replies, or all dead ones if there are no ids, and returns their number.
func redeliver(ctx context.Context, store *operate.Store, name string, ids []turnkeeper.ReplyID) (int, error) {
	if _, err := store.Webhook(ctx, name); err != nil {
		return 0, webhookError(name, err)
	}
	if len(ids) == 0 {
		return store.RedeliverDead(ctx, name)
	}
	for n, id := range ids {
		done, err := store.Redeliver(ctx, name, id)
		switch {
		case errors.Is(err, turnkeeper.ErrNotFound):
			return n, shell.NotFound(`there is no reply %d: "turnctl outbox" lists them`, id)
		case err != nil:
			return n, err
		case !done:
			return n, shell.Refused(fmt.Errorf("reply %d is being delivered: wait for the end", id))
		}
	}
	return len(ids), nil
}

func pauseWebhookCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "pause NAME REASON", Short: "Stop deliveries to a webhook; replies wait until it is resumed",
		Args:    shell.ExactArgs(2),
		Example: `  turnctl webhooks pause shop "endpoint maintenance"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			reason := strings.TrimSpace(args[1])
			if reason == "" {
				return shell.Misused("give a reason, for other operators")
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				if err := db.Store.PauseWebhook(cmd.Context(), args[0], reason); err != nil {
					return webhookError(args[0], err)
				}
				return s.Print(map[string]string{"paused": args[0]}, func() {
					s.Out.Line("webhook %s paused", term.Plain(args[0]))
				})
			})
		},
	}
}

func changeWebhook(s *shell.Session, use, short, verb string, change func(context.Context, *operate.Store,
	string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: shell.ExactArgs(1), Example: "  turnctl webhooks " + strings.Replace(use,
			"NAME", "shop", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				if err := change(cmd.Context(), db.Store, args[0]); err != nil {
					return webhookError(args[0], err)
				}
				return s.Print(map[string]string{verb: args[0]}, func() {
					s.Out.Line("webhook %s %s", term.Plain(args[0]), verb)
				})
			})
		},
	}
}

func webhookError(name string, err error) error {
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return shell.NotFound(`there is no webhook %q: "turnctl webhooks" lists them`, name)
	case errors.Is(err, operate.ErrWebhookServed):
		return shell.Refused(
			fmt.Errorf(
				"a worker has the webhook %q in its settings: remove it there, stop that worker, and retry in half a minute", name))
	default:
		return err
	}
}
