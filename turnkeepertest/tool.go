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
		if err := registry.Register(wrap(&watched{Tool: tool, world: w, spec: spec})); err != nil {
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

// An approver has the method that a tools.Approver adds to those of a tool.
type approver interface {
	Approve(ctx context.Context, call tools.Call) (policy.Decision, error)
}

// wrap returns the tool, which decides about its calls and looks them up if the user's tool does.
func wrap(t *watched) tools.Tool {
	decision, decides := t.Tool.(approver)
	reconciler, looks := t.Tool.(tools.Reconciler)
	lookup := &watchedReconciler{t, reconciler}
	switch {
	case decides && looks:
		return struct {
			*watchedReconciler
			approver
		}{lookup, decision}
	case decides:
		return struct {
			*watched
			approver
		}{t, decision}
	case looks:
		return lookup
	default:
		return t
	}
}

func (t *watchedReconciler) Reconcile(ctx context.Context, call tools.Call) (tools.Result, bool, error) {
	p := ctx.Value(processKey{}).(*process)
	result, happened, err := t.reconciler.Reconcile(context.WithValue(ctx, callKey{}, &toolRun{p, t.spec, call, 0}),
		call)
	t.world.note(p, "%s looks up %s: happened %v, error %v", t.spec.Name, call.Key, happened, err)
	return result, happened, err
}
