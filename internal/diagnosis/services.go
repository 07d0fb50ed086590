package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// examineTokens reports an HTTP API that answers nobody, because there is no token.
func examineTokens(ctx context.Context, d *Report, set Settings, store Store) {
	if !set.NeedsToken {
		return
	}
	there, err := store.AnyToken(ctx)
	if err != nil {
		d.Unread("tokens", err)
		return
	}
	d.Judge(there, Warn, "tokens", map[bool]string{true: "there are tokens for the HTTP API",
		false: "there is none, so the HTTP API answers every request with 401"}[there],
		"create one: "+set.command("turnctl")+" tokens create NAME --scopes send,read")
}

// examineWebhooks reports the state of each webhook.
func examineWebhooks(ctx context.Context, d *Report, store Store, c words.Clock) {
	all, err := store.Webhooks(ctx)
	if err != nil {
		d.Unread("webhooks", err)
		return
	}
	for _, w := range all {
		name := "webhook " + w.Name
		switch {
		case !w.PausedAt.IsZero():
			d.Add(Warn, name, fmt.Sprintf("paused %s: %s; %s", c.Ago(w.PausedAt), w.PausedReason,
				repliesWait(w.Pending)), "turnctl webhooks resume "+w.Name)
		case !w.Served():
			d.Add(Warn, name, "no worker has it in its settings; "+repliesWait(w.Pending),
				"start a worker that has it, or remove it: turnctl webhooks remove "+w.Name)
		case w.Dead > 0 || w.Pending > 0 && w.FailedAt.After(w.SucceededAt):
			found, advice := failingWebhook(w, c)
			d.Add(Warn, name, found, advice)
		default:
			d.Add(OK, name, fmt.Sprintf("%d pending, none dead", w.Pending), "")
		}
	}
}

func repliesWait(n int) string {
	return words.Thousands(int64(n)) + " " + verb(n, "reply waits", "replies wait")
}

// failingWebhook describes undelivered replies, and says what to do.
func failingWebhook(w operate.WebhookView, c words.Clock) (found, advice string) {
	advice = "fix the endpoint: pending replies are retried by themselves; see turnctl webhooks show " + w.Name
	if w.Pending > 0 && w.FailedAt.After(w.SucceededAt) {
		found = fmt.Sprintf("its newest attempt failed %s; %s, the oldest for %s; ", c.Ago(w.FailedAt),
			repliesWait(w.Pending), words.Coarse(w.Oldest))
	}
	if w.Dead > 0 {
		found += fmt.Sprintf("%s dead %s; ", words.Thousands(int64(w.Dead)), verb(w.Dead, "delivery", "deliveries"))
		advice = "fix the endpoint, then run turnctl webhooks redeliver " + w.Name + " --dead"
	}
	return found + "last error: " + orDash(words.Brief(w.LastError, 300)), advice
}

// examineModels reports models that are down. One that leaves an agent without a model is a failure.
func examineModels(ctx context.Context, d *Report, store Store, c words.Clock) {
	models, err := store.Models(ctx)
	if err != nil {
		d.Unread("models", err)
		return
	}
	up, waits := 0, waitsOfAgents{}
	for _, m := range models {
		switch {
		case !m.Used():
			continue
		case !m.Down():
			up++
			continue
		}
		verdict, left := Warn, ""
		if stuck := withoutAnother(m, models); len(stuck) > 0 {
			left = "; " + words.Enumerate(stuck) + " " + verb(len(stuck), "has", "have") + " no other model that is up"
			if awaited := slices.ContainsFunc(stuck, func(agent string) bool {
				return waits.forModel(ctx, d, store, agent, m.Model)
			}); awaited {
				verdict, left = Fail, left+", and messages wait"
			}
		}
		d.Add(verdict, "model "+m.Model, fmt.Sprintf("down since %s, %s: %s%s", c.At(m.DownSince), m.ErrorClass,
			words.Brief(m.Error, 300), left), adviceOfModel(m, c))
	}
	if up > 0 {
		d.Add(OK, "models", words.Plural(up, "model")+" in use and not down", "")
	}
}

// newestMessages is how many open messages of an agent are looked at in each state.
const newestMessages = 100

// waitsOfAgents has what the newest open messages of agents wait for, read once.
type waitsOfAgents map[string][]waiting.Wait

// forModel reports whether one of the newest open messages of an agent waits for the model.
func (w waitsOfAgents) forModel(ctx context.Context, d *Report, store Store, agent, model string) bool {
	if _, read := w[agent]; !read {
		w[agent] = []waiting.Wait{}
		for _, state := range []turnkeeper.MessageState{turnkeeper.MessageWaiting, turnkeeper.MessageRunning} {
			messages, err := store.Messages(ctx, operate.Page{Agent: agent, State: string(state),
				Limit: newestMessages})
			if err != nil {
				d.Unread("models", err)
			}
			for _, m := range messages {
				w[agent] = append(w[agent], m.Waits...)
			}
		}
	}
	return slices.ContainsFunc(w[agent], func(one waiting.Wait) bool { return one.Model == model })
}

// withoutAnother returns the agents that need the model now, and no other model that is up.
func withoutAnother(m modelhealth.Health, all []modelhealth.Health) (stuck []string) {
	for _, agent := range m.NeededBy {
		if !slices.ContainsFunc(all, func(other modelhealth.Health) bool {
			return !other.Down() && slices.Contains(other.NeededBy, agent)
		}) {
			stuck = append(stuck, agent)
		}
	}
	return stuck
}

// adviceOfModel says how to fix a model that is down, by the class of its newest failure.
func adviceOfModel(m modelhealth.Health, c words.Clock) string {
	provider, _, _ := strings.Cut(m.Model, "/")
	switch inference.Class(m.ErrorClass) {
	case inference.ClassAuth:
		return "set the right key of the provider " + provider +
			" and restart the workers: they read it when they start"
	case inference.ClassQuota:
		return "add credit to the account of the provider " + provider + "; it is tried again " + c.At(m.Until)
	case inference.ClassNotFound:
		return "correct the model's name in the file of " + words.Enumerate(m.Agents) +
			", and make the workers reload it (SIGHUP); or correct the base_url of the provider " +
			provider + " in the config file, and restart the workers"
	default:
		return "start or repair the provider " + provider + ", or wait: it is tried again " + c.At(m.Until) +
			", and messages continue with its first answer. " +
			"If it is only slow, raise model_idle_timeout. To try it at once: turnctl retry MESSAGE"
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
