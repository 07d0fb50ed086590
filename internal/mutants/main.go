// Mutants breaks one condition at a time in code that guards something, and runs the tests that
// should notice. A mutant that no test notices is printed as a survivor.
//
//	mutants [-jobs N] [-budget D] [-quick] [-again] [TARGET...]
//
// It runs under storage/storagetest/serve, from the root of the module; make mutants does that.
// targets.go says what is mutated, and which packages' tests are to notice; equivalent.txt names the
// mutants that do the same as the original, with the reason.
//
// Nothing in the work tree changes. Go code is compiled once for all mutants of a target, with an
// overlay that puts a switch around each condition; an environment variable then selects the
// switch to throw. SQL statements are replaced in the same way. A mutated function of the schema
// replaces the one in the template of the tests' databases. First each test runs alone, to find
// out which mutants it reaches: a mutant is shown only to tests that reach it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	jobs := flags.Int("jobs", runtime.NumCPU(), "how many tests run at once")
	budget := flags.Duration("budget", 0, "how long the tests that a mutant is shown to may take, each alone and all together; 0: any time")
	quick := flags.Bool("quick", false, "run only the tests that a target names to be asked first")
	again := flags.Bool("again", false, "run only the mutants that survived the last run of the target")
	_ = flags.Parse(arguments)

	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	equivalent, err := readEquivalents(filepath.Join(root, equivalentsFile))
	if err != nil {
		return err
	}
	var total tally
	for _, t := range chosen {
		r := &runner{target: t, root: root, out: filepath.Join(root, "bin", "mutants", t.Name), jobs: *jobs, again: *again, quick: *quick, budget: *budget, equivalent: equivalent}
		sum, err := r.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		say("%s: %s\n", t.Name, sum)
		total.add(sum)
	}
	if len(chosen) > 1 {
		say("total: %s\n", total)
	}
	if total.survived > 0 {
		return fmt.Errorf("%d mutants survived", total.survived)
	}
	return nil
}

// choose finds the targets of the given names, or all.
func choose(names []string) ([]Target, error) {
	if len(names) == 0 {
		return targets, nil
	}
	var chosen []Target
	for _, name := range names {
		i := slices.IndexFunc(targets, func(t Target) bool { return t.Name == name })
		if i < 0 {
			var known []string
			for _, t := range targets {
				known = append(known, t.Name)
			}
			return nil, fmt.Errorf("there is no target %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, targets[i])
	}
	return chosen, nil
}

type tally struct{ killed, survived, equivalent, invalid int }

func (t *tally) add(o tally) {
	t.killed += o.killed
	t.survived += o.survived
	t.equivalent += o.equivalent
	t.invalid += o.invalid
}

func (t tally) String() string {
	share := 100.0
	if n := t.killed + t.survived; n > 0 {
		share = 100 * float64(t.killed) / float64(n)
	}
	return fmt.Sprintf("%d killed, %d survived (%.1f %%), %d equivalent, %d invalid", t.killed, t.survived, share, t.equivalent, t.invalid)
}
