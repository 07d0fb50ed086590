package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestTargets generates all mutants without running them. It fails if a target names a file or function
// that does not exist, or a statement or function without mutants, or if an entry of equivalent.txt matches no mutant.
func TestTargets(t *testing.T) {
	listed, err := readEquivalents(filepath.Join(root, equivalentsFile))
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	names := map[string]bool{}
	for _, target := range targets {
		if names[target.Name] {
			t.Errorf("two targets are called %s", target.Name)
		}
		names[target.Name] = true
		for _, pkg := range target.Tests { // each is compiled into a test binary
			if files, _ := filepath.Glob(filepath.Join(root, pkg, "*_test.go")); len(files) == 0 {
				t.Errorf("%s: %s has no tests", target.Name, pkg)
			}
		}
		set, err := makeMutants(root, target, nil)
		if err != nil {
			t.Errorf("%s: %v", target.Name, err)
			continue
		}
		t.Logf("%s: %d mutants", target.Name, len(set.mutants))
		if len(set.mutants) == 0 {
			t.Errorf("%s has no mutants", target.Name)
		}
		mutated := map[string]bool{}
		for _, m := range set.mutants {
			made[m.Key()] = true
			mutated[m.Query+m.Schema] = true
		}
		for _, name := range slices.Concat(target.Queries, target.Functions) {
			if !mutated[name] {
				t.Errorf("%s: %s has no mutants", target.Name, name)
			}
		}
	}
	for key, reason := range listed {
		if !made[key] {
			t.Errorf("equivalent.txt lists a mutant that no longer exists: %s", key)
		}
		if reason == "" {
			t.Errorf("equivalent.txt gives no reason for %s", key)
		}
	}
}

func TestMutantsOfGo(t *testing.T) {
	const source = `package p

func passOn(err error) error {
	if err != nil {
		return errors.Join(err)
	}
	return nil
}

func guard(a, b int, name string) (int, bool) {
	if a > 1 && (b == 2 || !(a < b)) {
		return a, a == b
	}
	switch name {
	case "x", "y":
		return 1, true
	}
	switch {
	case a == 3:
		return 2, false
	}
	for i := 0; i < a; i++ {
		f(func() bool { return ready(i) })
	}
	return 0, ready(a)
}

func other() bool { return done }
`
	rewritten, mutants, err := rewriteGo("p.go", []byte(source), []string{"guard", "passOn"}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mutants {
		got = append(got, m.Before+" -> "+m.After)
	}
	slices.Sort(got)
	want := []string{
		`!(a < b) -> false`, `(b == 2 || !(a < b)) -> true`, `a < b -> a <= b`, `a < b -> false`, `a < b -> true`,
		`a == 3 -> false`, `a == 3 -> true`,
		`a == b -> false`, `a == b -> true`, `a > 1 && (b == 2 || !(a < b)) -> false`, `a > 1 -> a >= 1`,
		`a > 1 -> true`, `b == 2 -> false`,
		`i < a -> false`, `i < a -> i <= a`, `name == "x" -> never this case`, `name == "y" -> never this case`,
		`ready(a) -> false`, `ready(a) -> true`, `ready(i) -> false`, `ready(i) -> true`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mutants (-want +got):\n%s", diff)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", rewritten, 0); err != nil {
		t.Errorf("%v:\n%s", err, rewritten)
	}
	if strings.Contains(string(rewritten), "other() bool { return mutant_") {
		t.Error("a function that was not named was rewritten")
	}
	if _, _, err := rewriteGo("p.go", []byte(source), []string{"gaurd"}, 1, nil); err == nil {
		t.Error("an unknown function was accepted")
	}
}

func TestMutantsOfSQL(t *testing.T) {
	for name, c := range map[string]struct {
		sql  string
		want []string
	}{
		"a statement": {
			"update t set a = case when b then 1 end -- where c\nwhere id = $1 and (x or not y) and n between 1 and 2 returning id",
			[]string{
				"(x or not y) -> true", "b -> false", "b -> true", "id = $1 -> true",
				"id = $1 and (x or not y) and n between 1 and 2 -> false",
				"n between 1 and 2 -> true", "not y -> false", "x -> false",
			},
		},
		"joins and parts": {
			"with w as (select distinct on (n) 1 from a join b on a.id = b.id where a.n <= 3 order by 1) select from w left join c on true where exists (select from d where d.s in ('x', 'y')) on conflict (id) do nothing",
			[]string{
				"a.id = b.id -> false", "a.id = b.id -> true", "a.n <= 3 -> a.n < 3", "a.n <= 3 -> false",
				"a.n <= 3 -> true",
				"d.s in ('x', 'y') -> d.s in ( 'y')", "d.s in ('x', 'y') -> d.s in ('x')", "d.s in ('x', 'y') -> false",
				"d.s in ('x', 'y') -> true",
				"exists (select from d where d.s in ('x', 'y')) -> exists (select from d where d.s in ( 'y'))",
				"exists (select from d where d.s in ('x', 'y')) -> exists (select from d where d.s in ('x'))",
				"exists (select from d where d.s in ('x', 'y')) -> false",
				"exists (select from d where d.s in ('x', 'y')) -> true",
				"true -> false", "true -> true",
			},
		},
		"a function": {
			"create function f(a integer) returns boolean language plpgsql as $$ begin if a < 1 or b then return false; end if; return a > 2 and case when c then d else false end; end $$;",
			[]string{
				"a < 1 -> a <= 1", "a < 1 -> false", "a < 1 or b -> true", "a > 2 -> a >= 2", "a > 2 -> true",
				"a > 2 and case when c then d else false end -> false",
				"b -> false", "c -> false", "c -> true", "case when c then d else false end -> true",
				"d -> false", "d -> true",
			},
		},
	} {
		var got []string
		for _, change := range mutateSQL(c.sql) {
			got = append(got, change.before+" -> "+change.after)
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	const sql = "select from t where a = $1"
	for _, change := range mutateSQL(sql) {
		if changed := change.apply(sql); !strings.Contains(changed, "a = $1") {
			t.Errorf("a parameter was removed: %s", changed)
		}
	}
}

func TestEquivalents(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"two":             {"# why\n\na f: x -> true\n\tbecause\n\tof this\nb g: y -> false\n\tso\n", ""},
		"no reason":       {"a f: x -> true\nb g: y -> false\n\tso\n", "has no reason"},
		"no mutant":       {"\tso\n", "a reason without a mutant"},
		"one twice":       {"a f: x -> true\n\tso\na f: x -> true\n\tso\n", "listed twice"},
		"no reason, last": {"a f: x -> true\n", "has no reason"},
	} {
		path := filepath.Join(t.TempDir(), "equivalent.txt")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readEquivalents(path)
		if c.want == "" && (err != nil || got["a f: x -> true"] != "because of this") || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, error %v", name, got, err)
		}
	}
}
