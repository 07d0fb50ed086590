package enqueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/traceparent"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// Program is the program that puts messages into inboxes.
func Program() shell.Program {
	return shell.Program{Command: func(s *shell.Session) *cobra.Command {
		e := &enqueuing{Session: s}
		script := ""
		cmd := &cobra.Command{
			Use:   "enqueue --agent NAME [flags] [BODY... | -]",
			Short: "Put a message into an agent's inbox",
			Long: `enqueue puts a message into an agent's inbox. The body is the arguments, joined
by spaces, or standard input if there is no argument or only "-". Once it prints
"message N accepted", the message is stored and will be answered when a worker
runs.

--at and --delay set the earliest time to run the message. Until then it blocks
no other message; it takes its place in the conversation when it is due. A time
without an offset, such as "YYYY-MM-DD hh:mm", is in the local time zone.

With --wait it waits for the reply and prints it on standard output; everything
else goes to standard error. With --json it prints one JSON object instead.

` + enqueueExitHelp,
			Example: `  enqueue --agent demo --wait "What time is it?"
  enqueue --agent clerk --key order-17 < order.txt
  enqueue --agent clerk --delay 2h "Has the parcel arrived?"
  enqueue --agent clerk --user anna --conversation weather --json -- "-5 degrees, and now?"`,
			Args: cobra.ArbitraryArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				if script != "" {
					return shell.WriteCompletion(cmd, s.Stdout, script)
				}
				return e.run(cmd, args)
			},
			// "completion" may be the body's first word
			CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		}
		f := cmd.Flags()
		f.StringVar(&e.message.Agent, "agent", "", "the agent that handles the message (required)")
		f.StringVar(&e.message.User, "user", "", "whose conversation it is; two users never share one. None: no user's")
		f.StringVar(&e.message.Conversation, "conversation", turnkeeper.DefaultConversation,
			"the conversation to continue")
		f.StringVar(&e.message.Key, "key", "",
			"idempotency key: a repeat with the same key, for the same agent and user, is the same message")
		f.IntVar(&e.message.Priority, "priority", 0,
			fmt.Sprintf("each point counts as one second of waiting, %d to %d", turnkeeper.MinPriority, turnkeeper.MaxPriority))
		f.StringVar(&e.due.at, "at", "", "run it at this time or later: YYYY-MM-DDThh:mm (local), or RFC 3339")
		shell.DurationFlag(f, &e.due.delay, "delay", 0, "run it after this delay or later, such as 90s or 2h")
		f.StringVar(&e.message.TraceParent, "trace-parent", "", "W3C trace context to store with the message")
		f.BoolVar(&e.wait, "wait", false, "wait for the reply and print it")
		shell.DurationFlag(f, &e.waitTimeout, "wait-timeout", 10*time.Minute,
			"how long to wait for the reply after the message is due; 0: no limit")
		f.BoolVar(&e.json, "json", false, "print one JSON object")
		f.BoolVarP(&e.verbose, "verbose", "v", false,
			"with --wait: print a line for each event, also if standard error is not a terminal")
		f.StringVar(&script, "completion", "", "print the completion script for a shell: bash, zsh, fish or powershell")
		_ = cmd.RegisterFlagCompletionFunc("completion", cobra.FixedCompletions([]string{"bash", "zsh", "fish",
			"powershell"}, cobra.ShellCompDirectiveNoFileComp))
		s.AddSettings(cmd, shell.ReaderSettings...)
		s.CompleteAll(cmd, nil, nil)
		return cmd
	}}
}

// An enqueuing is one run of enqueue.
type enqueuing struct {
	*shell.Session

	message     turnkeeper.Submission
	due         due
	wait        bool
	waitTimeout time.Duration
	json        bool
	verbose     bool
}

// acceptedView is the JSON output for an accepted message.
type acceptedView struct {
	MessageID    turnkeeper.MessageID `json:"message_id"`
	Agent        string               `json:"agent"`
	User         string               `json:"user"`
	Conversation string               `json:"conversation"`
	DueAt        *time.Time           `json:"due_at,omitempty"` // with --at and --delay
	*awaitedView
}

// awaitedView is the part of the JSON output with --wait.
type awaitedView struct {
	State   turnkeeper.MessageState `json:"state"`
	Outcome *turnkeeper.TurnState   `json:"outcome"` // null: no reply
	TurnID  *turnkeeper.TurnID      `json:"turn_id"`
	ReplyID *turnkeeper.ReplyID     `json:"reply_id"`
	Reply   *string                 `json:"reply"`
	*views.ReplyEnd
}

func (e *enqueuing) run(cmd *cobra.Command, args []string) error {
	if e.message.Agent == "" {
		return shell.Misused("--agent is required: --agent NAME")
	}
	// An empty value probably comes from an unset shell variable.
	for _, name := range []string{"key", "user", "conversation"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
			return shell.Misused("--%s is empty: give it a value, or omit it", name)
		}
	}
	if e.waitTimeout < 0 {
		return shell.Misused("--wait-timeout is %s: it must not be negative", e.waitTimeout)
	}
	if !e.wait && cmd.Flags().Changed("wait-timeout") {
		return shell.Misused("--wait-timeout needs --wait: add --wait, or omit --wait-timeout")
	}
	if _, ok := traceparent.Parse(e.message.TraceParent); !ok && e.message.TraceParent != "" {
		return shell.Misused("--trace-parent is %q: it must be a W3C traceparent, such as "+
			"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01, or empty", e.message.TraceParent)
	}
	var err error
	if e.due, err = e.due.check(cmd.Flags().Changed("at"), cmd.Flags().Changed("delay"), e.Zone); err != nil {
		return err
	}
	if e.message.Body, err = e.readBody(args); err != nil {
		return err
	}
	// Check what needs no database. The database checks the configured size limit.
	if err := e.message.Check(turnkeeper.LargestMessage); err != nil {
		return err
	}
	return e.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
		return e.send(cmd.Context(), cfg, db)
	})
}

func (e *enqueuing) send(ctx context.Context, cfg *config.Config, db *database.Database) error {
	if err := e.setDue(ctx, db.Store); err != nil {
		return err
	}
	id, err := db.Store.Enqueue(ctx, e.message)
	if storage.Unanswered(err) {
		return e.unanswered(err)
	}
	if errors.Is(err, turnkeeper.ErrUnknownAgent) && hasFile(cfg.AgentsDir, e.message.Agent) {
		return fmt.Errorf("%w '%s': the workers have not read agents/%[2]s.md yet: send them SIGHUP",
			turnkeeper.ErrUnknownAgent, e.message.Agent)
	}
	if err != nil {
		return err
	}
	accepted := acceptedView{MessageID: id, Agent: e.message.Agent, User: e.message.User,
		Conversation: e.message.Conversation}
	if accepted.Conversation == "" {
		accepted.Conversation = turnkeeper.DefaultConversation
	}
	said := ""
	if e.due.given || e.message.Key != "" { // a repeat has the due time and state of the first
		m, err := db.Store.Message(ctx, id)
		switch {
		case err != nil:
		case !m.ClosedAt.IsZero():
			said = ", now closed: " + string(m.State)
		case e.due.given || m.DueAt.After(m.AcceptedAt):
			accepted.DueAt, said = &m.DueAt, ", due "+e.Clock().Exactly(m.DueAt)
		}
	}
	to := e.Err // with --wait, standard output gets only the reply
	if !e.wait {
		to = e.Out
	}
	if e.json && !e.wait {
		return shell.WriteJSON(e.Stdout, accepted)
	}
	if !e.json {
		to.Line("message %d accepted%s", id, said)
	}
	e.adviseWorker(ctx, cfg, db.Store)
	if !e.wait {
		return nil
	}
	w := &awaiting{enqueuing: e, db: db, accepted: accepted}
	return w.run(ctx)
}

// changeOfFile describes how the agent's file differs from the registered definition. It returns "" if it does not
// differ or there is no such file.
func (e *enqueuing) changeOfFile(ctx context.Context, cfg *config.Config, store *operate.Store) string {
	file := agentdef.Read(filepath.Join(cfg.AgentsDir, e.message.Agent+".md")).Definition
	if file == nil {
		return ""
	}
	agents, err := store.Agents(ctx)
	if err != nil {
		return ""
	}
	change, err := shell.ChangeOf(ctx, store, file, agents)
	if err != nil {
		return ""
	}
	return change
}

// unanswered says what to do if the outcome of the commit is unknown.
func (e *enqueuing) unanswered(err error) error {
	advice := `check with "turnctl inbox" before you send it again; with --key, sending again is always safe`
	if e.message.Key != "" {
		advice = "send it again with the same --key: that is always safe"
	}
	return fmt.Errorf("the message may or may not have been accepted: %w; %s", err, advice)
}

// adviseWorker warns if no worker is running, the agent's file has changed, or
// the scheduler is paused.
func (e *enqueuing) adviseWorker(ctx context.Context, cfg *config.Config, store *operate.Store) {
	workers, err := store.Workers(ctx)
	if err != nil || e.json {
		return
	}
	if !slices.ContainsFunc(workers, func(w presence.Heartbeat) bool { return w.State() == presence.Alive }) {
		e.Err.Line("%s", e.Err.Paint(term.Warned, "no worker is running: the message waits until you start one"))
	}
	if change := e.changeOfFile(ctx, cfg, store); change != "" {
		e.Err.Line("%s", e.Err.Paint(term.Warned, fmt.Sprintf("agent %s: %s; %s", e.message.Agent, change,
			shell.AdviceOfChange(change))))
	}
	if set, err := store.SchedulerSettings(ctx); err == nil && !set.PausedAt.IsZero() {
		e.Err.Line("%s", e.Err.Paint(term.Warned, `the scheduler is paused (`+term.OneLine(set.PausedReason,
			200)+`): the message waits until "turnctl scheduler resume"`))
	}
}

const enqueueExitHelp = shell.ExitHelp + `
  4  --wait: no reply in time; the message stays accepted
  5  --wait: the message failed or was cancelled; its reply, if any, is printed
  7  --wait: the reply is degraded: it may be incomplete; its text, if any, is printed
  130  stopped by a signal before the end`

// hasFile reports whether the folder has a file of the agent.
func hasFile(dir, agent string) bool {
	if agent == "" || filepath.Base(agent) != agent {
		return false
	}
	info, err := os.Stat(filepath.Join(dir, agent+".md"))
	return err == nil && !info.IsDir()
}
