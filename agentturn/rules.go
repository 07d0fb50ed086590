package agentturn

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/calls"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// rules decide about the calls of a turn, by what its agent, its tools and the settings say.
type rules struct {
	task     *task
	newest   *agentdef.Definition // of the agent; nil: that of the task, or unknown
	retired  bool                 // the agent was retired
	calls    *calls.List
	toolCall func(*calls.Call) tools.Call // as its tool gets it, without stored results
}

// rule asks the rules about a call, once. Its handles must be resolved.
func (r *rules) rule(ctx context.Context, call *calls.Call) policy.Decision {
	if call.ChangesNothing() {
		return policy.Decision{Verdict: policy.Allow}
	}
	if call.Ruling == nil {
		d := r.decideCall(ctx, call)
		if call.Gate && d.Allows() {
			d = policy.Decision{Verdict: policy.Ask,
				Reason: "the rules at the time of the plan asked; they have changed since"}
		}
		call.Ruling = &d
	}
	return *call.Ruling
}

// decideCall returns the decision of the rules about a call with the arguments with which it would run now. Of the
// agent's newest definition only what it denies counts.
func (r *rules) decideCall(ctx context.Context, call *calls.Call) policy.Decision {
	about := policy.Call{
		Tool: call.Name, Arguments: call.Args(), Effect: call.Effect, Agent: r.task.record.Turn.Agent,
		User: r.task.record.Turn.User, Conversation: r.task.record.Turn.Conversation,
		Trigger: r.task.record.Turn.Trigger,
		Labels:  r.calls.LabelsOf(call),
	}
	d := policy.Strictest(r.decideByRules(r.task.def, call.Spec, about), r.decideByTool(ctx, call))
	if r.newest != nil {
		if now := r.decideByRules(r.newest, call.Spec, about); now.Verdict == policy.Deny {
			d = policy.Strictest(d, now)
		}
	}
	return policy.Strictest(d, call.Spec.Flow.Decide(about))
}

// decideByRules returns the strictest decision of the rules of a definition for a call. The agent's rule for the tool
// replaces the tool's own rule and the agent's rule for all tools. The rule of the settings always applies.
func (r *rules) decideByRules(def *agentdef.Definition, spec tools.Spec, call policy.Call) policy.Decision {
	general := r.task.cfg.Rules.Decide(r.task.cfg.Approve, call)
	if rule := def.Approve[call.Tool]; rule != "" {
		return policy.Strictest(r.task.cfg.Rules.Decide(rule, call), general)
	}
	d := policy.Strictest(r.task.cfg.Rules.Decide(spec.Approve, call),
		r.task.cfg.Rules.Decide(def.Approve[policy.AllTools], call))
	return policy.Strictest(d, general)
}

// decideByTool returns the decision of a tools.Approver. Other tools allow the call.
func (r *rules) decideByTool(ctx context.Context, call *calls.Call) (d policy.Decision) {
	approver, ok := call.Tool.(tools.Approver)
	if !ok {
		return d
	}
	err := r.task.guard(func() (err error) {
		d, err = approver.Approve(ctx, r.toolCall(call))
		return err
	})
	if err != nil {
		return policy.Decision{Verdict: policy.Ask, Rule: d.Rule, Reason: "the tool could not decide: " + err.Error()}
	}
	return d
}

// gatesOf returns the planned calls that certainly need an approval. Calls with handles are decided after their handles
// are resolved.
func (r *rules) gatesOf(ctx context.Context, made []*calls.Call) (keys []turnkeeper.CallKey) {
	for _, call := range made {
		if call.State != turnkeeper.CallPlanned {
			continue
		}
		always := cmp.Or(r.task.def.Approve[call.Name], call.Spec.Approve) == policy.Always
		if always || !call.Handles && r.rule(ctx, call).Verdict == policy.Ask {
			call.Gate = true
			keys = append(keys, call.Key)
		}
	}
	return keys
}

// An approval is of a call as it was asked about, and may be answered days later. What has changed since counts: a call
// that a person allowed starts only if the rules of now do not deny it, its tool is still the agent's, and its
// arguments fit the schema.

// offeredNow returns the tools of the agent's newest definition.
func (r *rules) offeredNow() *tools.Registry {
	if r.newest == nil {
		return r.task.offered.Registry
	}
	now := r.task.family()
	now.def = r.newest
	return withSpawn(offered(r.task.cfg, r.newest, r.task.bounds), now.spawnable(), r.task.cfg.Agents)
}

// misfit returns why the arguments with which a call would run do not fit its tool of now. Empty: they fit. The texts
// in place of handles may be longer than arguments.
func (r *rules) misfit(now *tools.Registry, call *calls.Call) (fault string) {
	args := string(call.Args())
	if !call.Handles {
		return now.CheckAsWritten(call.Name, args)
	}
	_, fault, err := now.Resolve(call.Name, args, func(text string) (string, error) { return text, nil })
	if err != nil { // cannot happen: they were read before
		return err.Error()
	}
	return fault
}

// outdated returns why a call may not start with the arguments that a person allowed. Empty: it may.
func (r *rules) outdated(ctx context.Context, call *calls.Call) string {
	if r.retired {
		return "the agent was retired since"
	}
	now := r.offeredNow()
	if _, ok := now.Spec(call.Name); !ok {
		return "the agent no longer has this tool"
	}
	if fault := r.misfit(now, call); fault != "" {
		return "its arguments no longer fit the tool: " + fault
	}
	if d := r.decideCall(ctx, call); d.Verdict == policy.Deny {
		return fmt.Sprintf("a rule denies it now (%s)", cmp.Or(d.Reason, "this call is not allowed"))
	}
	return ""
}

// recheck finds out whether a call that a person allowed may start now, with the arguments that the person wrote.
func (r *rules) recheck(ctx context.Context, call *calls.Call) {
	call.UseEdited()
	why := r.outdated(ctx, call)
	if why != "" {
		r.task.log.Warn("a call that a person allowed does not start", zap.Stringer("call", call.Key),
			zap.String("tool", call.Name), zap.String("reason", why))
	}
	call.Recheck(why)
}

// seeLabels reports whether what decides about a call may look at labels. Labels that wait to be written are written
// first.
func (r *rules) seeLabels(call *calls.Call) bool {
	_, decides := call.Tool.(tools.Approver)
	rules := []string{r.task.cfg.Approve, call.Spec.Approve}
	for _, def := range []*agentdef.Definition{r.task.def, r.newest} { // the newest may deny it
		if def != nil {
			rules = append(rules, def.Approve[call.Name], def.Approve[policy.AllTools])
		}
	}
	ruled := slices.ContainsFunc(rules, func(rule string) bool {
		return rule != "" && rule != policy.Never && rule != policy.Always
	})
	return (decides || ruled || len(call.Spec.Flow.Sinks) > 0)
}
