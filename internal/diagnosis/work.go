package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper/agentdef"
	"turnkeeper/asks"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// longWait is how long a message must be due before doctor reports why it waits.
const longWait = 5 * time.Minute

// lossesShown is how long doctor reports a closed turn that lost its workers.
const lossesShown = 24 * time.Hour

// examineBudgets reports agents that may not call a model before the next day.
func examineBudgets(ctx context.Context, d *Report, store Store, c words.Clock) {
	all, err := store.DaySpend(ctx)
	if err != nil {
		d.Unread("budgets", err)
		return
	}
	for _, spent := range all {
		def, err := agentdef.ParseRecorded(spent.Agent, spent.Definition)
		if err != nil {
			continue // turnctl doctor reports the error, where the file is
		}
		b := def.Budget
		var over, bounds []string
		for _, bound := range []struct {
			key, noun   string
			used, limit int64
		}{{"day_tokens", "tokens", spent.Tokens, b.DayTokens}, {"day_calls", "model calls", spent.Calls, b.DayCalls}} {
			if bound.limit > 0 && (bound.used >= bound.limit || spent.PutOff > 0) {
				over = append(over, fmt.Sprintf("%s of %s %s of today are spent", words.Thousands(bound.used),
					words.Thousands(bound.limit), bound.noun))
				bounds = append(bounds, bound.key)
			}
		}
		if len(over) == 0 && spent.PutOff == 0 {
			continue
		}
		found := slices.Concat(over, []string{"until " + c.At(spent.Until)})
		advice := "it continues by itself"
		if len(bounds) > 0 {
			advice += fmt.Sprintf("; or raise %s in the file of %s and reload it", words.Enumerate(bounds), spent.Agent)
		}
		if spent.PutOff > 0 {
			found = append(found, words.Plural(spent.PutOff, "turn")+" "+verb(spent.PutOff, "waits", "wait"))
			advice += "; then turnctl retry MESSAGE retries a message at once"
		}
		d.AddAbout(spent.Agent, Warn, "budget "+spent.Agent, strings.Join(found, ", "), advice)
	}
}

// verb returns the form of a verb for n things.
func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// examineWaits reports messages that have been due for longer than longWait, and what they wait for.
func examineWaits(ctx context.Context, d *Report, store Store, c words.Clock) {
	waits, err := store.LongWaits(ctx, longWait)
	if err != nil {
		d.Unread("waiting", err)
		return
	}
	var unread error
	for _, w := range waits {
		m, err := store.WaitingMessage(ctx, w.Message)
		if err != nil {
			unread = cmp.Or(unread, err)
			continue
		}
		if len(m.Waits) == 0 {
			continue // granted since the first query
		}
		var reasons []string
		for _, wait := range m.Waits {
			reasons = append(reasons, wait.Long(c.Moment))
		}
		found := fmt.Sprintf("message %d has been due since %s: %s", w.Message, c.At(w.DueAt),
			strings.Join(reasons, "; "))
		if w.Messages > 1 {
			found += fmt.Sprintf("; %s messages of this agent have waited for more than %s",
				words.Thousands(int64(w.Messages)), words.Exact(longWait))
		}
		d.AddAbout(w.Agent, Warn, "waiting "+w.Agent, found,
			fmt.Sprintf("what you can do: turnctl explain --message %d", w.Message))
	}
	if unread != nil {
		d.Unread("waiting", unread)
	}
}

// examineAsks reports turns that wait for a person, and asks that expired lately without an answer.
func examineAsks(ctx context.Context, d *Report, store Store, queue operate.Totals, c words.Clock) {
	for _, t := range queue.Waits {
		if t.Reason == waiting.Person {
			d.Judge(c.Now.Sub(t.Since) < longWait, Warn, "asks", "turns wait: "+t.Long(c.Ago),
				"list them: turnctl asks; then answer: turnctl asks approve ID, turnctl asks deny ID or turnctl asks answer ID")
		}
	}
	expired, err := store.ListAsks(ctx, operate.AskFilter{State: asks.Expired})
	if err != nil {
		d.Unread("asks", err)
		return
	}
	for _, a := range expired {
		if c.Now.Sub(a.ClosedAt) < lossesShown {
			d.AddAbout(a.Agent, Warn, fmt.Sprintf("ask %d", a.ID),
				fmt.Sprintf("nobody answered it before it expired %s: %s of turn %d of %s", c.Ago(a.ClosedAt), a.Kind,
					a.Turn, a.Agent),
				fmt.Sprintf("see what became of it: turnctl explain %d", a.Turn))
		}
	}
}

// examineLosses reports turns that lost workers.
func examineLosses(ctx context.Context, d *Report, store Store) {
	turns, err := store.LossyTurns(ctx, lossesShown)
	if err != nil {
		d.Unread("lost in turns", err)
		return
	}
	for _, t := range turns {
		found := fmt.Sprintf("%s died or fell silent during message %d of %s", words.Plural(t.Losses, "worker"),
			t.Message, t.Agent)
		if len(t.Tools) > 0 {
			found += ", while " + verb(len(t.Tools), "the tool ", "one of the tools ") + strings.Join(t.Tools, ", ") +
				" may have run"
		}
		advice := fmt.Sprintf("if the message or its tool is the cause: turnctl cancel %d; details: turnctl explain %d",
			t.Turn, t.Turn)
		if t.State.Terminal() {
			found += "; it is " + string(t.State)
			advice = fmt.Sprintf("details: turnctl explain %d", t.Turn)
			if t.GivenUp {
				found += ", given up"
				advice = fmt.Sprintf("fix the tool before the message is sent again: turnctl explain %d", t.Turn)
			}
		}
		d.AddAbout(t.Agent, Warn, fmt.Sprintf("lost in turn %d", t.Turn), found, advice)
	}
}

// examineSchedules reports paused schedules.
func examineSchedules(ctx context.Context, d *Report, set Settings, store Store, c words.Clock) {
	schedules, err := store.Schedules(ctx)
	if err != nil {
		d.Unread("schedules", err)
		return
	}
	for _, s := range schedules {
		if !s.Active || s.PausedAt.IsZero() {
			continue
		}
		found := fmt.Sprintf("%s has been paused since %s", s.Name, c.At(s.PausedAt))
		if s.PausedReason != "" {
			found += ": " + words.Brief(s.PausedReason, 300)
		}
		d.AddAbout(s.Agent, Warn, "schedule "+s.Agent, found, fmt.Sprintf("%s schedules resume %s/%s",
			set.command("turnctl"), s.Agent, s.Name))
	}
}
