package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A runner runs the tests of one target with its mutants.
type runner struct {
	target     Target
	root, out  string
	jobs       int
	again      bool
	quick      bool
	near       bool // of a sample: run only tests near a mutant
	budget     time.Duration
	equivalent map[string]string
	sampled    map[string][]string // of a sample: who uses each function and view of the schema

	set   *mutantSet
	list  string // path of the list of overlay files
	tests []*test

	raced *races // of a sample
}

// races are the packages whose tests were compiled with the race detector, each with its error.
type races struct {
	mu  sync.Mutex
	all map[string]error
}

// overlayFolder begins with an underscore, so the go command ignores it.
const overlayFolder = "_overlay"

// say prints the progress of a run.
func say(format string, arguments ...any) { fmt.Fprintf(os.Stdout, format, arguments...) }

// A test is one function of a test package.
type test struct {
	pkg, name string
	first     bool // runs before the others
	took      time.Duration
	reached   map[string]bool // ids of mutants in Go, names of queries and functions
}

func (r *runner) run(ctx context.Context) (sum tally, err error) {
	if err := os.MkdirAll(filepath.Join(r.out, overlayFolder), 0o700); err != nil {
		return sum, err
	}
	if err := r.build(ctx); err != nil {
		return sum, err
	}
	r.markEquivalents()
	if err := r.measure(ctx); err != nil {
		return sum, err
	}
	chosen, err := r.choose()
	if err != nil {
		return sum, err
	}
	r.each(ctx, len(chosen), func(i int) { r.judge(ctx, chosen[i]) })
	if ctx.Err() != nil {
		return sum, context.Cause(ctx)
	}
	return r.report(chosen)
}

// build compiles the tests with all mutants, except those that the compiler refuses.
func (r *runner) build(ctx context.Context) (err error) {
	if r.sampled != nil {
		return r.buildSample(ctx)
	}
	refused := map[string]map[int]bool{}
	for range 5 {
		if r.set, err = makeMutants(r.root, r.target, refused); err != nil {
			return err
		}
		say("%s: %d mutants; building the tests\n", r.target.Name, len(r.set.mutants))
		if r.list, err = r.set.write(filepath.Join(r.out, overlayFolder)); err != nil {
			return err
		}
		again := false
		for _, pkg := range r.target.Tests {
			output, err := r.compile(ctx, pkg)
			if err == nil {
				continue
			}
			if again = r.refuse(output, refused); !again {
				return fmt.Errorf("%s does not compile with the mutants: %w\n%s", pkg, err, output)
			}
			break
		}
		if !again {
			return nil
		}
	}
	return errors.New("the mutants do not compile")
}

// buildSample compiles the tests with the mutants of a sample, which are known to compile.
func (r *runner) buildSample(ctx context.Context) (err error) {
	say("%s: %d mutants; building the tests of %d packages\n", r.target.Name, len(r.set.mutants), len(r.target.Tests))
	if r.list, err = r.set.write(filepath.Join(r.out, overlayFolder)); err != nil {
		return err
	}
	var mu sync.Mutex
	var faults []error
	r.each(ctx, len(r.target.Tests), func(i int) {
		if output, err := r.compile(ctx, r.target.Tests[i]); err != nil {
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, fmt.Errorf("%s does not compile with the mutants: %w\n%s",
				r.target.Tests[i], err, output))
		}
	})
	return errors.Join(faults...)
}

func (r *runner) binary(pkg string) string {
	return filepath.Join(r.out, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "_")+".test")
}

func (r *runner) compile(ctx context.Context, pkg string, flags ...string) (output []byte, err error) {
	arguments := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", r.list, "-o", r.binary(pkg)}
	cmd := exec.CommandContext(ctx, "go", append(append(arguments, flags...), pkg)...)
	cmd.Dir = r.root
	if slices.Contains(flags, "-race") { // which needs cgo, and make turns that off
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	return cmd.CombinedOutput()
}

// withRaces compiles the tests of a package with the race detector, once, and returns the name of the program for
// process.
func (r *runner) withRaces(ctx context.Context, pkg string) (string, error) {
	r.raced.mu.Lock()
	defer r.raced.mu.Unlock()
	if _, done := r.raced.all[pkg]; !done {
		output, err := r.compile(ctx, pkg, "-race", "-o", r.binary(pkg+raceSuffix))
		if err != nil {
			err = fmt.Errorf("%s does not compile with the race detector: %w\n%s", pkg, err, output)
		}
		r.raced.all[pkg] = err
	}
	return pkg + raceSuffix, r.raced.all[pkg]
}

// raceSuffix ends the name of a program of tests with the race detector.
const raceSuffix = "_race"

var compilerError = regexp.MustCompile(`(?m)^(\S+?):(\d+):\d+: `)

// refuse records the lines with compiler errors.
func (r *runner) refuse(output []byte, refused map[string]map[int]bool) (found bool) {
	for _, at := range compilerError.FindAllStringSubmatch(string(output), -1) {
		for path := range r.set.overlay {
			if !strings.HasSuffix(at[1], filepath.Base(path)) {
				continue
			}
			if refused[path] == nil {
				refused[path] = map[int]bool{}
			}
			line, _ := strconv.Atoi(at[2])
			say("%s:%d: the compiler refuses a mutant: %s\n", path, line, output)
			found = found || !refused[path][line]
			refused[path][line] = true
		}
	}
	return found
}

// markEquivalents marks the mutants that equivalent.txt lists.
func (r *runner) markEquivalents() {
	for i := range r.set.mutants {
		if _, listed := r.equivalent[r.set.mutants[i].Key()]; listed {
			r.set.mutants[i].verdict = equivalent
		}
	}
}

// process runs tests of a package.
func (r *runner) process(ctx context.Context, pkg string, environment []string, arguments ...string) ([]byte, error) {
	if r.sampled == nil {
		arguments = append([]string{"-test.short"}, arguments...)
	}
	cmd := exec.CommandContext(ctx, r.binary(pkg), arguments...)
	cmd.Dir = filepath.Join(r.root, strings.TrimSuffix(pkg, raceSuffix))
	cmd.Env = append(append(os.Environ(), "TURNKEEPER_TESTS=mutants"), environment...) // see testrun.Guard
	if r.sampled != nil {
		cmd.Env = append(cmd.Env, "GOFLAGS=-overlay="+r.list) // for the programs that tests build
	}
	return cmd.CombinedOutput()
}

// measure runs each test alone, to measure its time and find the mutants it reaches.
func (r *runner) measure(ctx context.Context) error {
	for _, pkg := range r.target.Tests {
		arguments := []string{"-test.list", "^(Test|Fuzz)"}
		if r.target.Skip != "" {
			arguments = append(arguments, "-test.skip", r.target.Skip)
		}
		output, err := r.process(ctx, pkg, nil, arguments...)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", pkg, err, output)
		}
		skip := regexp.MustCompile(r.target.Skip)
		first := regexp.MustCompile(r.target.First)
		for _, name := range strings.Fields(string(output)) {
			if r.quick && !first.MatchString(name) {
				continue
			}
			if (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz")) &&
				(r.target.Skip == "" || !skip.MatchString(name)) {
				r.tests = append(r.tests, &test{pkg: pkg, name: name})
			}
		}
	}
	say("%s: %d tests; running each of them alone\n", r.target.Name, len(r.tests))
	patch, err := r.counting()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var faults []error
	r.each(ctx, len(r.tests), func(i int) {
		if err := r.measureOne(ctx, r.tests[i], patch); err != nil {
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, err)
		}
	})
	if err := r.leaveOut(errors.Join(faults...)); err != nil {
		return err
	}
	first := regexp.MustCompile(cmp.Or(r.target.First, "^$"))
	for _, t := range r.tests {
		t.first = first.MatchString(t.name)
	}
	slices.SortStableFunc(r.tests, func(a, b *test) int {
		if a.first != b.first {
			return map[bool]int{true: -1, false: 1}[a.first]
		}
		return cmp.Compare(a.took, b.took)
	})
	return ctx.Err()
}

// leaveOut removes the tests that fail without a mutant from a sample, which runs all tests. If they are more than one
// in fifty, something else is wrong. Of a target none may fail.
func (r *runner) leaveOut(faults error) error {
	if faults == nil {
		return nil
	}
	all := len(r.tests)
	r.tests = slices.DeleteFunc(r.tests, func(t *test) bool { return t.reached == nil })
	if r.sampled == nil || all-len(r.tests) > all/50 {
		return fmt.Errorf("tests fail without a mutant: %w", faults)
	}
	say("%s: left out, because they fail without a mutant:\n%v\n", r.target.Name, faults)
	return nil
}

// counting returns a patch of the schema that makes functions count their calls.
func (r *runner) counting() (sql string, err error) {
	for _, name := range r.target.Functions {
		_, _, text, err := schemaFunction(r.root, name)
		if err != nil {
			return "", err
		}
		if counts, ok := counted(name, text); ok {
			sql += counts
		}
	}
	if sql != "" {
		sql = "create schema mutants;\ngrant usage on schema mutants to public;\n" +
			"alter default privileges in schema mutants grant all on sequences to public;\n" + sql
	}
	return sql, nil
}

// alone is how long a test may take while it is measured.
const alone = 10 * time.Minute

func (r *runner) measureOne(ctx context.Context, t *test, patch string) (err error) {
	for range 3 { // on a busy machine a test may need a second try
		var folder string
		if folder, err = os.MkdirTemp(r.out, "reach"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		environment := []string{reachVariable + "=" + filepath.Join(folder, "reached")}
		if patch != "" {
			last :=
				"select sequencename::text from pg_sequences where schemaname = 'mutants' and last_value is not null"
			if err := writePatch(folder, patch, last); err != nil {
				return err
			}
			environment = append(environment, patchVariable+"="+folder)
		}
		began := time.Now()
		output, failed := r.process(ctx, t.pkg, environment, "-test.timeout", alone.String(), "-test.run",
			"^"+t.name+"$")
		t.took = time.Since(began)
		if failed == nil {
			t.reached = readLines(filepath.Join(folder, "reached"), filepath.Join(folder, "last.txt"))
			return nil
		}
		err = fmt.Errorf("%s %s: %w\n%s", t.pkg, t.name, failed, output)
	}
	return err
}

const patchVariable = "TURNKEEPER_TEST_PATCH" // see storagetest.PatchVariable

func writePatch(folder, patch, last string) error {
	err := os.WriteFile(filepath.Join(folder, "patch.sql"), []byte(patch), 0o600)
	if err == nil && last != "" {
		err = os.WriteFile(filepath.Join(folder, "last.sql"), []byte(last), 0o600)
	}
	return err
}

func readLines(paths ...string) map[string]bool {
	lines := map[string]bool{}
	for _, path := range paths {
		content, _ := os.ReadFile(path)
		for _, line := range strings.Fields(string(content)) {
			lines[line] = true
		}
	}
	return lines
}

// choose returns the mutants to judge, with the tests that reach them.
func (r *runner) choose() (chosen []*Mutant, err error) {
	last := map[string]bool{}
	if r.again {
		content, err := os.ReadFile(r.survivors())
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(content)) {
			last[strings.TrimSuffix(line, "\n")] = true
		}
	}
	known := map[string]bool{}
	for _, t := range r.tests {
		for name := range t.reached {
			known[name] = true
		}
	}
	for i := range r.set.mutants {
		m := &r.set.mutants[i]
		if r.again && !last[m.Key()] {
			continue
		}
		places := r.places(m)
		observed := slices.ContainsFunc(places, func(p string) bool { return known[p] })
		for _, t := range r.tests {
			// SQL that seems unreached may be reached in an unobserved way: run every test.
			if slices.ContainsFunc(places, func(p string) bool { return t.reached[p] }) || r.sampled == nil && m.Query+
				m.Schema != "" && !observed {
				m.reaching = append(m.reaching, t)
			}
		}
		m.reaching = r.within(m)
		chosen = append(chosen, m)
	}
	return chosen, nil
}

// places returns what a test reaches when it runs the code of a mutant: the mutant itself, its query or function, and
// in a sample what uses its function or view.
func (r *runner) places(m *Mutant) []string {
	if m.Query+m.Schema == "" {
		return []string{strconv.Itoa(m.ID)}
	}
	return append([]string{m.Query + m.Schema}, r.sampled[m.Schema]...)
}

// within returns the tests of a mutant that run: the First ones, in a sample those near it, and of the others the
// fastest that fit into the budget.
func (r *runner) within(m *Mutant) (tests []*test) {
	sum := time.Duration(0)
	for _, t := range m.reaching {
		near := r.sampled != nil && isNear(m, t)
		if r.near && !near {
			continue
		}
		if !t.first && !near {
			if sum += t.took; r.budget > 0 && sum > r.budget && len(tests) > 0 {
				continue
			}
		}
		tests = append(tests, t)
	}
	return tests
}

// isNear reports whether a test is in the folder of a mutant, or in one above or below it. The store's properties are
// tested in jobs.
func isNear(m *Mutant, t *test) bool {
	at := topFolder(m.File)
	if m.Query+m.Schema != "" {
		at = "storage"
	}
	of := topFolder(strings.TrimPrefix(t.pkg, "./") + "/")
	return of == at || at == "storage" && of == "jobs"
}

// topFolder returns the first part of a path, or the first two below internal and tools.
func topFolder(path string) string {
	parts := strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")
	if parts[0] == "internal" || parts[0] == "tools" {
		parts = parts[:min(2, len(parts))]
	} else {
		parts = parts[:1]
	}
	return strings.Join(parts, "/")
}

func (r *runner) survivors() string { return filepath.Join(r.out, "survivors") }

// each calls f with 0 to n-1, with at most as many calls at once as the runner has jobs,
// and prints the progress.
func (r *runner) each(ctx context.Context, n int, f func(int)) {
	var group sync.WaitGroup
	var mu sync.Mutex
	next, done, said := 0, 0, time.Now()
	for range max(1, r.jobs) {
		group.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				f(i)
				mu.Lock()
				if done++; time.Since(said) > 10*time.Second {
					said = time.Now()
					say("%s: %d of %d\n", r.target.Name, done, n)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
}

// judge runs the tests that reach a mutant, the fastest first.
func (r *runner) judge(ctx context.Context, m *Mutant) {
	if m.verdict == equivalent {
		return
	}
	if len(m.reaching) == 0 {
		m.verdict = unreached
		say("%s: %s: %s\n", r.target.Name, m.verdict, m)
		return
	}
	folder, err := os.MkdirTemp(r.out, "mutant")
	if err != nil {
		m.verdict, m.noticed = invalid, err.Error()
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	environment := []string{chosenVariable + "=" + strconv.Itoa(m.ID)}
	if m.Schema != "" {
		if err := writePatch(folder, m.Text, ""); err != nil {
			m.verdict, m.noticed = invalid, err.Error()
			return
		}
		environment = []string{patchVariable + "=" + folder}
	}
	for _, batch := range batches(m.reaching) {
		if m.verdict, m.noticed = r.show(ctx, m, batch, environment); m.verdict != survived {
			break
		}
	}
	if m.verdict != killed {
		say("%s: %s: %s\n", r.target.Name, m.verdict, m)
	}
}

// batches splits tests into batches of one package each. Each batch takes longer than the previous one.
func batches(tests []*test) (all [][]*test) {
	open := map[string]int{}
	room := map[string]time.Duration{}
	for _, t := range tests {
		if _, begun := open[t.pkg]; !begun || total(all[open[t.pkg]]) > room[t.pkg] {
			open[t.pkg] = len(all)
			room[t.pkg] = max(2*time.Second, 4*room[t.pkg])
			all = append(all, nil)
		}
		all[open[t.pkg]] = append(all[open[t.pkg]], t)
	}
	return all
}

func total(tests []*test) (sum time.Duration) {
	for _, t := range tests {
		sum += t.took
	}
	return sum
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	// SQL that the server cannot parse says nothing about the tests.
	unreadable = regexp.MustCompile(`SQLSTATE (42601|42804|42883|42P18|42703)`)
)

// show runs tests of one package with a mutant. Tests near a dropped lock run with the race detector, as in CI.
func (r *runner) show(ctx context.Context, m *Mutant, tests []*test, environment []string) (verdict, string) {
	program := tests[0].pkg
	if r.raced != nil && m.Operator == "drop a lock" && m.Query+m.Schema == "" && isNear(m, tests[0]) {
		var err error
		if program, err = r.withRaces(ctx, program); err != nil {
			return invalid, err.Error()
		}
	}
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	limit := time.Minute + 10*total(tests)
	output, err := r.process(ctx, program, environment, "-test.failfast", "-test.timeout", limit.String(),
		"-test.run", "^("+strings.Join(names, "|")+")$")
	switch {
	case err == nil:
		return survived, ""
	case ctx.Err() != nil:
		return survived, "interrupted"
	case unreadable.Match(output):
		return invalid, string(unreadable.Find(output))
	}
	if found := failedTest.FindSubmatch(output); found != nil {
		return killed, string(found[1])
	}
	if bytes.Contains(output, []byte("panic: test timed out")) {
		return killed, "timeout"
	}
	return killed, "the process ended: " + oneLine(string(output[max(0, len(output)-200):]))
}

// report writes the verdict on each mutant, and counts them.
func (r *runner) report(mutants []*Mutant) (sum tally, err error) {
	var all, survivors bytes.Buffer
	for _, m := range mutants {
		fmt.Fprintf(&all, "%s: %s\n\t%s\n", m.verdict, m, m.noticed)
		sum.add(tallyOf(m))
		if m.verdict == survived || m.verdict == unreached {
			fmt.Fprintln(&survivors, m.Key())
		}
	}
	if r.sampled != nil {
		say("%s", tallies(mutants))
	}
	err = os.WriteFile(filepath.Join(r.out, "report"), all.Bytes(), 0o600)
	return sum, errors.Join(err, os.WriteFile(r.survivors(), survivors.Bytes(), 0o600))
}
