// Package chosen has the switches that make mutants SAMPLE plants into the source: each call names a mutant, and does
// what the original code does unless a process runs with that mutant. Nothing else imports it.
package chosen

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"
)

// The names of the environment variables that dev/mutants sets.
const (
	Variable      = "MUTANT"       // the id of the mutant that a process runs
	ReachVariable = "MUTANT_REACH" // a file for the ids of the mutants that it reaches
)

var (
	id, _   = strconv.Atoi(os.Getenv(Variable))
	reach   = os.Getenv(ReachVariable)
	reached sync.Map
)

// Is reports whether the process runs with a mutant.
func Is(mutant int) bool {
	if reach != "" {
		note(mutant)
	}
	return id == mutant
}

// Zero returns the zero value instead of v.
func Zero[T any](mutant int, v T) (zero T) {
	if Is(mutant) {
		return zero
	}
	return v
}

// Either returns b instead of a.
func Either[T any](mutant int, a, b T) T {
	if Is(mutant) {
		return b
	}
	return a
}

// Plus returns n + 1 instead of n.
func Plus[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64](
	mutant int, n T) T {
	if Is(mutant) {
		return n + 1
	}
	return n
}

// Endless returns a context that is never cancelled instead of ctx.
func Endless(ctx context.Context, mutant int) context.Context {
	if Is(mutant) {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Now returns the process's time instead of t.
func Now(mutant int, t time.Time) time.Time {
	if Is(mutant) {
		return time.Now()
	}
	return t
}

// note appends the id of a mutant to the file of ReachVariable, once.
func note(mutant int) {
	if _, again := reached.LoadOrStore(mutant, true); again {
		return
	}
	f, err := os.OpenFile(reach, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	_, _ = f.WriteString(strconv.Itoa(mutant) + "\n")
	_ = f.Close()
}
