// Package fault declares the hook that tests put into a program, to stop, delay or kill it at a
// labelled point.
package fault

import "context"

// A Hook is called at labelled points, by the goroutine that reaches them. It may block, panic or
// end the process. Each package that calls it returns its labels from a function FaultPoints. Only
// test programs set a Hook.
type Hook interface {
	At(ctx context.Context, label string)
}

// At calls the hook, if there is one.
func At(ctx context.Context, hook Hook, label string) {
	if hook != nil {
		hook.At(ctx, label)
	}
}
