package agentturn

import (
	"cmp"
	"context"
	"fmt"

	"go.uber.org/zap"

	"turnkeeper/agentturn/calls"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// An approval is of a call as it was asked about, and may be answered days later. What has changed since counts: a call that a
// person allowed starts only if the rules of now do not deny it, its tool is still the agent's, and its arguments fit the schema.

// offeredNow returns the tools of the agent's newest definition.
func (l *ledger) offeredNow() *tools.Registry {
	if l.newest == nil {
		return l.offered.Registry
	}
	now := *l.task
	now.def = l.newest
	return withSpawn(offered(l.cfg, l.newest, l.bounds), now.spawnable(), l.cfg.Agents)
}

// misfit returns why the arguments with which a call would run do not fit its tool of now. Empty: they fit. The texts in place of
// handles may be longer than arguments.
func (l *ledger) misfit(now *tools.Registry, call *calls.Call) (fault string) {
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
func (l *ledger) outdated(ctx context.Context, call *calls.Call) string {
	if l.retired {
		return "the agent was retired since"
	}
	now := l.offeredNow()
	if _, ok := now.Spec(call.Name); !ok {
		return "the agent no longer has this tool"
	}
	if fault := l.misfit(now, call); fault != "" {
		return "its arguments no longer fit the tool: " + fault
	}
	if d := l.decideCall(ctx, call); d.Verdict == policy.Deny {
		return fmt.Sprintf("a rule denies it now (%s)", cmp.Or(d.Reason, "this call is not allowed"))
	}
	return ""
}

// recheck finds out whether a call that a person allowed may start now, with the arguments that the person wrote.
func (l *ledger) recheck(ctx context.Context, call *calls.Call) {
	call.UseEdited()
	why := l.outdated(ctx, call)
	if why != "" {
		l.log.Warn("a call that a person allowed does not start", zap.Stringer("call", call.Key), zap.String("tool", call.Name), zap.String("reason", why))
	}
	call.Recheck(why)
}
