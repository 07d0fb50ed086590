// Mutants breaks one condition at a time in guards, and runs the tests that should fail. It prints
// the mutants that no test kills.
//
//	mutants [-jobs N] [-budget D] [-quick] [-again] [TARGET...]
//	mutants -sample N [-seed N] [-in FOLDER,...] [-near] [-jobs N] [-budget D] [-again]
//
// It runs under storage/storagetest/serve, from the root of the module; make mutants does that.
// targets.go lists the code to mutate and the packages whose tests must fail. equivalent.txt lists
// the mutants that behave like the original, with the reason.
//
// The work tree does not change. Go code is compiled once for all mutants of a target, with an
// overlay that puts a switch around each condition; an environment variable selects the mutant.
// SQL statements are replaced in the same way. A mutated function of the schema replaces the
// original in the template of the test databases. First each test runs alone, to find out which
// mutants it reaches; only these tests run with a mutant.
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
	jobs := flags.Int("jobs", runtime.NumCPU(), "number of tests to run at once")
	budget := flags.Duration("budget", 0,
		"time limit for the tests of a mutant, each alone and all together; 0: no limit")
	quick := flags.Bool("quick", false, "run only the tests that a target lists as First")
	again := flags.Bool("again", false, "run only the survivors of the last run")
	sample := flags.Int("sample", 0,
		"plant this many faults of other kinds at random instead, and run all tests that reach them")
	seed := flags.Uint64("seed", 1, "seed of the sample")
	in := flags.String("in", "",
		"plant the sample in these folders only, separated by commas; migrations and storage/queries are the SQL")
	near := flags.Bool("near", false,
		"run only the tests in the folder of a mutant of the sample, or above or below it")
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
	common := runner{root: root, jobs: *jobs, again: *again, quick: *quick, near: *near, budget: *budget,
		equivalent: equivalent}
	if *sample > 0 {
		var folders folders
		if *in != "" {
			folders = strings.Split(*in, ",")
		}
		return runSample(ctx, common, folders, *sample, *seed)
	}
	var total tally
	for _, t := range chosen {
		r := common
		r.target, r.out = t, filepath.Join(root, "bin", "mutants", t.Name)
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

// choose returns the targets with these names, or all targets.
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
			return nil, fmt.Errorf("unknown target %q; targets: %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, targets[i])
	}
	return chosen, nil
}

type tally struct{ killed, survived, unreached, equivalent, invalid int }

func tallyOf(m *Mutant) (t tally) {
	*map[verdict]*int{killed: &t.killed, survived: &t.survived, unreached: &t.unreached, equivalent: &t.equivalent,
		invalid: &t.invalid}[m.verdict] = 1
	return t
}

func (t *tally) add(o tally) {
	t.killed += o.killed
	t.survived += o.survived
	t.unreached += o.unreached
	t.equivalent += o.equivalent
	t.invalid += o.invalid
}

func (t tally) String() string {
	share := 100.0
	if n := t.killed + t.survived + t.unreached; n > 0 {
		share = 100 * float64(t.killed) / float64(n)
	}
	return fmt.Sprintf("%d killed (%.1f %%), %d survived, %d unreached, %d equivalent, %d invalid",
		t.killed, share, t.survived, t.unreached, t.equivalent, t.invalid)
}
