package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"turnkeeper/internal/survival"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// EffectText says what happens to an agent at its level; empty: nothing.
func EffectText(a operate.AgentLevel) string {
	e, said := a.Rules[a.Level], []string(nil)
	if len(e.Models) > 0 {
		said = append(said, "asks "+e.Models[0])
	}
	if e.NoSchedules {
		said = append(said, "no schedules")
	}
	if e.MinPriority != nil {
		said = append(said, fmt.Sprintf("priority %d or more", *e.MinPriority))
	}
	return strings.Join(said, ", ")
}

// previewed is the maximum number of characters of the reason of a pin.
const previewed = 120

// PinText says who pinned which level, and for how long.
func PinText(c words.Clock, p *operate.Pin) string {
	text := string(p.Level) + ", "
	if p.By != "" {
		text += "by " + p.By + " "
	}
	text += c.Ago(p.At)
	if !p.Until.IsZero() {
		text += ", until " + c.Moment(p.Until)
	}
	if p.Agent == "" {
		text += ", for all"
	}
	if p.Reason != "" {
		text += ": " + words.Brief(p.Reason, previewed)
	}
	return text
}

// LevelText says in a clause at which level an agent is, and why.
func LevelText(c words.Clock, a operate.AgentLevel) string {
	text := fmt.Sprintf("%s is at survival level %s", a.Agent, a.Level)
	if a.Pin != nil {
		return text + ", pinned: " + PinText(c, a.Pin)
	}
	if percent, ok := a.Used.Left(); ok {
		text += fmt.Sprintf(": %d %% of its budget of the day is left, until %s", percent, c.Moment(a.NextDay))
	}
	return text
}

// NotNormal returns the agents whose level is not normal, or is pinned.
func NotNormal(all operate.Levels) []operate.AgentLevel {
	return slices.DeleteFunc(slices.Clone(all.Agents), func(a operate.AgentLevel) bool {
		return a.Level == survival.Normal && a.Pin == nil
	})
}

// examineLevels reports agents whose survival level is not normal, or is pinned.
func examineLevels(ctx context.Context, d *Report, store Store, c words.Clock) {
	all, err := store.Levels(ctx)
	if err != nil {
		d.Unread("levels", err)
		return
	}
	shown := NotNormal(all.For(func(string) bool { return true })) // without who pinned the level of all
	for i, a := range NotNormal(all) {
		advice := ""
		switch {
		case a.Pin != nil && a.Pin.Agent == "":
			advice = "to end the pin of all agents: turnctl levels unpin"
		case a.Pin != nil:
			advice = "to end the pin: turnctl levels unpin --agent " + a.Agent
		default:
			advice = fmt.Sprintf("raise day_tokens or day_calls in the file of %s and reload it", a.Agent)
			if percent, ok := a.Used.Left(); ok && percent > 0 { // a pin is no budget
				advice += fmt.Sprintf(", or pin a level: turnctl levels pin normal --agent %s --for 1h", a.Agent)
			}
		}
		d.Checks = append(d.Checks, Check{
			Name: "level " + a.Agent, Verdict: Warn, Found: levelFound(c, a), ForSome: levelFound(c, shown[i]),
			Advice: advice, Agent: a.Agent,
		})
	}
}

// levelFound says at which level an agent is, and what that does.
func levelFound(c words.Clock, a operate.AgentLevel) string {
	found := LevelText(c, a)
	if happens := EffectText(a); happens != "" {
		found += "; here: " + happens
	}
	if a.Held > 0 {
		found += fmt.Sprintf("; %s %s", words.Plural(a.Held, "message"), verb(a.Held, "waits", "wait"))
	}
	if a.Skipping > 0 {
		found += fmt.Sprintf("; %s did not run: see turnctl schedules", words.Plural(a.Skipping, "schedule"))
	}
	return found
}
