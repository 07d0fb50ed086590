package turnkeepertest

import (
	"context"

	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A watched tool is a user's tool whose runs are recorded.
type watched struct {
	tools.Tool
	world *world
	spec  tools.Spec
}

// A watchedReconciler is a watched tool with a Reconcile.
type watchedReconciler struct {
	*watched
	reconciler tools.Reconciler
}

// A toolRun identifies, in a context, the run of a tool that effects belong to.
type toolRun struct {
	process *process
	spec    tools.Spec
	call    tools.Call
	number  int // among the runs of the call, from 1; 0: a Reconcile
}

type (
	callKey    struct{} // value: *toolRun
	processKey struct{} // value: *process
)

// watch returns a registry of the user's tools, each watched.
func (w *world) watch(all []tools.Tool) (*tools.Registry, error) {
	plain, err := tools.NewRegistry(all...) // unwrapped, because NewRegistry reports the errors that tools.New found
	if err != nil {
		return nil, err
	}
	registry := &tools.Registry{}
	for _, tool := range all {
		spec, _ := plain.Spec(tool.Spec().Name)
		t := &watched{Tool: tool, world: w, spec: spec}
		var wrapped tools.Tool = t
		if reconciler, ok := tool.(tools.Reconciler); ok {
			wrapped = &watchedReconciler{t, reconciler}
		}
		if err := registry.Register(wrapped); err != nil {
			return nil, err
		}
	}
	return registry, nil
}

func (t *watched) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	p := ctx.Value(processKey{}).(*process)
	p.gate()
	number := t.world.ran(p, t.spec, call)
	return t.Tool.Run(context.WithValue(ctx, callKey{}, &toolRun{p, t.spec, call, number}), call)
}

// Approve decides about a call. Tools that decide nothing themselves allow it.
func (t *watched) Approve(ctx context.Context, call tools.Call) (policy.Decision, error) {
	if approver, ok := t.Tool.(tools.Approver); ok {
		return approver.Approve(ctx, call)
	}
	return policy.Decision{}, nil
}

func (t *watchedReconciler) Reconcile(ctx context.Context, call tools.Call) (tools.Result, bool, error) {
	p := ctx.Value(processKey{}).(*process)
	result, happened, err := t.reconciler.Reconcile(context.WithValue(ctx, callKey{}, &toolRun{p, t.spec, call, 0}),
		call)
	t.world.note(p, "%s looks up %s: happened %v, error %v", t.spec.Name, call.Key, happened, err)
	return result, happened, err
}
