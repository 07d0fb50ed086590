package worker

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/database"
	"turnkeeper/policy"
	"turnkeeper/policy/cel"
	"turnkeeper/storage/operate"
)

// decisionView is the JSON output for the decision about a call.
type decisionView struct {
	Turn      turnkeeper.TurnID `json:"turn"`
	Round     int               `json:"round"`
	Ordinal   int               `json:"ordinal"`
	Agent     string            `json:"agent"`
	Tool      string            `json:"tool"`
	Arguments string            `json:"arguments"`
	Labels    []policy.Label    `json:"labels"`
	State     string            `json:"state"` // of the call, as it was
	Decision  policy.Verdict    `json:"decision"`
	Reason    string            `json:"reason"`
}

// policyView is the JSON output of a test.
type policyView struct {
	Rule  string         `json:"rule"`
	Since time.Time      `json:"since"`
	Calls []decisionView `json:"calls"`
	Allow int            `json:"allow"`
	Ask   int            `json:"ask"`
	Deny  int            `json:"deny"`
}

func policyCommand(s *shell.Session) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Test rules about tool calls", Args: cobra.NoArgs}
	cmd.AddCommand(policyTestCommand(s))
	hideInherited(cmd)
	return cmd
}

func policyTestCommand(s *shell.Session) *cobra.Command {
	var rule, file, since string
	cmd := &cobra.Command{
		Use: "test", Short: "List what a rule would have decided about recorded calls", Args: cobra.NoArgs,
		Long: `Evaluate a rule for each call that models made in a period, and print each decision
and the totals. Without --rule and --file, test the approve setting. A call gets the
labels that its turn had before it. Handles in arguments are not replaced. The command
writes nothing. It uses the worker's database settings.`,
		Example: `  worker policy test --since 7d --rule '"private" in labels ? ask : allow'
  worker policy test --since 24h --file rule.cel -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			period, err := periodOf(since)
			if err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
				source, err := ruleOf(rule, file, cfg.Approve)
				if err != nil {
					return err
				}
				compiled, err := policy.Compile(source, cel.Compile)
				if err != nil {
					return shell.Wrong(err)
				}
				view := policyView{Rule: source, Since: s.Now().Add(-period), Calls: []decisionView{}}
				if err := db.Store.JournaledCalls(cmd.Context(), view.Since, func(c operate.JournaledCall) error {
					view.add(c, compiled.Decide(c.Call))
					return nil
				}); err != nil {
					return err
				}
				return s.Print(view, func() { showDecisions(s.Out, view) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "7d",
		"include turns that began within this time: days such as 7d, or a duration such as 12h")
	f.StringVar(&rule, "rule", "", "the rule: always, never, or a CEL expression")
	f.StringVar(&file, "file", "", "a file that contains the rule")
	f.StringVarP(&s.Format, "output", "o", shell.FormatText, "text for people, or json")
	cmd.MarkFlagsMutuallyExclusive("rule", "file")
	return cmd
}

// periodOf reads a duration, also in days.
func periodOf(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			return time.Duration(n) * day, nil
		}
	}
	period, err := strictyaml.ParseDuration(text)
	if err != nil || period <= 0 {
		return 0, shell.Misused("--since is %q: it must be days such as 7d, or a duration such as 12h", text)
	}
	return period, nil
}

func ruleOf(rule, file, setting string) (string, error) {
	switch {
	case rule != "":
		return rule, nil
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return "", shell.Wrong(err)
		}
		return strings.TrimSpace(string(text)), nil
	case setting != "":
		return setting, nil
	default:
		return "", shell.Wrong(errors.New("there is no rule: give --rule or --file, or set approve"))
	}
}

func (v *policyView) add(c operate.JournaledCall, d policy.Decision) {
	switch d.Verdict {
	case policy.Deny:
		v.Deny++
	case policy.Ask:
		v.Ask++
	default:
		d.Verdict = policy.Allow
		v.Allow++
	}
	labels := []policy.Label{}
	for _, m := range c.Labels {
		labels = append(labels, m.Label)
	}
	v.Calls = append(v.Calls, decisionView{
		Turn: c.Turn, Round: c.Key.Round, Ordinal: c.Key.Ordinal, Agent: c.Agent, Tool: c.Tool,
		Arguments: string(c.Arguments), Labels: labels,
		State: string(c.State), Decision: d.Verdict, Reason: d.Reason,
	})
}

func showDecisions(s *term.Screen, v policyView) {
	tones := map[policy.Verdict]term.Tone{policy.Allow: term.Good, policy.Ask: term.Warned, policy.Deny: term.Bad}
	t := term.NewTable("DECISION", ">TURN", "CALL", "AGENT", "TOOL", "ARGUMENTS", "LABELS", "STATE", "REASON")
	for _, c := range v.Calls {
		var labels []string
		for _, label := range c.Labels {
			labels = append(labels, string(label))
		}
		t.Add(term.Cell{Text: string(c.Decision), Tone: tones[c.Decision]}, strconv.FormatInt(int64(c.Turn), 10),
			fmt.Sprintf("%d.%d", c.Round, c.Ordinal), c.Agent,
			c.Tool, term.OneLine(c.Arguments, 40), term.OrDash(strings.Join(labels, " ")), c.State,
			term.OneLine(term.OrDash(c.Reason), 60))
	}
	if len(v.Calls) > 0 {
		t.Print(s)
	}
	s.Line("%s: %d allowed, %d asked, %d denied", term.Plural(len(v.Calls), "call"), v.Allow, v.Ask, v.Deny)
}
