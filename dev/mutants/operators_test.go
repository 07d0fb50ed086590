package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const someGo = `package p

import (
	"context"
	"slices"
	"sync"
	"time"
)

type row struct{ first, second string }

type box struct {
	mu   sync.Mutex
	last []int
}

func use(ctx context.Context, a, b int, at time.Time) {}

func (x *box) keep(ctx context.Context, from, to int, at time.Time) row {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer println("left")
	x.last = slices.Clone(x.last)
	if from < 3 {
		from++
	}
	use(ctx, from, to, at)
	r := row{first: "a"}
	return row{first: r.first, second: time.Duration(2 * time.Second).String()}
}
`

// groundOf returns a module with one package, and its spots.
func groundOf(t *testing.T, source string) *ground {
	t.Helper()
	dir := t.TempDir()
	ours, err := os.ReadFile(filepath.Join(root, "internal/chosen/chosen.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": "module turnkeeper\n\ngo 1.26\n", "p/p.go": source,
		"internal/chosen/chosen.go": string(ours)} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := survey(dir, "./p")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestOperatorsOfGo(t *testing.T) {
	g := groundOf(t, someGo)
	var got []string
	for _, s := range g.spots {
		got = append(got, s.operator+": "+s.before+" -> "+s.after)
	}
	slices.Sort(got)
	want := []string{
		`a wrong unit: 2 * time.Second -> 1000 * 2 * time.Second`,
		`another variable: from -> to`, `another variable: from -> to`, `another variable: r.first -> r.second`,
		`another variable: to -> from`,
		`drop a context: ctx -> without its end`,
		`drop a copy: slices.Clone(x.last) -> x.last`,
		`drop a defer: defer println("left") -> `,
		`drop a lock: x.mu.Lock() -> `,
		`drop a statement: from++ -> `, `drop a statement: use(ctx, from, to, at) -> `,
		`drop a statement: x.last = slices.Clone(x.last) -> `,
		`move a limit: 3 -> 3 + 1`, `move a limit: from < 3 -> from <= 3`,
		`now for a time: at -> time.Now()`,
		`swap arguments: from, to -> to, from`,
		`swap statements: defer println("left"); x.last = slices.Clone(x.last) -> x.last = slices.Clone(x.last); defer println("left")`,
		`swap statements: if from < 3 { from++ }; use(ctx, from, to, at) -> use(ctx, from, to, at); if from < 3 { from++ }`,
		`swap statements: x.last = slices.Clone(x.last); if from < 3 { from++ } -> if from < 3 { from++ }; x.last = slices.Clone(x.last)`,
		`zero a value: "a" -> zero of string`, `zero a value: "left" -> zero of string`,
		`zero a value: at -> zero of time.Time`, `zero a value: from -> zero of int`,
		`zero a value: r.first -> zero of string`, `zero a value: slices.Clone(x.last) -> zero of []int`,
		`zero a value: time.Duration(2 * time.Second).String() -> zero of string`, `zero a value: to -> zero of int`,
		`zero a value: x.last -> zero of []int`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	for i, s := range g.spots { // each alone compiles
		overlay, refused, err := g.planted(map[int]spot{i + 1: s})
		if err != nil || len(refused) > 0 || !strings.Contains(string(overlay["p/p.go"]), "chosen_.") {
			t.Errorf("%s: %s -> %s: refused %v, error %v:\n%s", s.operator, s.before, s.after, refused, err,
				overlay["p/p.go"])
		}
	}
}

// TestStatementsWhoseOrderMatters swaps two neighbours only if somebody could see it.
func TestStatementsWhoseOrderMatters(t *testing.T) {
	for body, want := range map[string]bool{
		"a = 1; b = 2":                               false,
		"a = b; b = 2":                               true,
		"a = 1; a = 2":                               true,
		"list = append(list, a); b = len(m)":         false,
		"list = append(list, a); a = 2":              true,
		"list = append(list, a); b = len(list)":      true,
		"a = int(int64(b)); list = list[:0]":         false,
		"a = count(); b = 2":                         true, // it may set b
		"a = <-c; b = 2":                             true,
		"a = 1; if b == 2 { return }":                true,
		"delete(m, a); b = 2":                        true,
		"a, b = b, a; list = append(list, len(m))":   false,
		"m[a] = 1; b = m[2]":                         true,
		"list[0] = a; list[1] = b":                   true, // it may be the same element
		"list[0] = a; list = append(list[:0], 1, 2)": true,
	} {
		const head = "package p\n\nvar c chan int\n\nfunc count() int { return 1 }\n\nfunc f(a, b int, list []int, m map[int]int) {\n"
		found := slices.ContainsFunc(groundOf(t, head+body+"\n}\n").spots, func(s spot) bool {
			return s.operator == "swap statements"
		})
		if found != want {
			t.Errorf("%s: swapped: %t, want %t", body, found, want)
		}
	}
}

// TestWhatTheCompilerRefuses plants one fault that compiles and two that do not: only these are refused.
func TestWhatTheCompilerRefuses(t *testing.T) {
	const source = "package p\n\nfunc f(a int) int {\n\tif a > 0 {\n\t\treturn 1\n\t}\n\tpanic(a)\n}\n\nfunc g() { println(f(1)) }\n"
	g := groundOf(t, source)
	ids := map[int]spot{}
	for i, s := range g.spots {
		if s.operator == "drop a statement" {
			ids[i+1] = s
		}
	}
	ids[100] = spot{pkg: "p", path: "p/p.go", edits: []edit{{strings.Index(source, "a > 0"),
		strings.Index(source, "a > 0") + 5, "chosen_.Is($) && nowhere"}}}
	_, refused, err := g.planted(ids)
	if err != nil {
		t.Fatal(err)
	}
	for id, s := range ids {
		if want := id == 100 || s.before == "panic(a)"; refused[id] != want {
			t.Errorf("%s: refused: %t, want %t", s.before, refused[id], want)
		}
	}
}

func TestOperatorsOfSQL(t *testing.T) {
	for name, c := range map[string]struct {
		sql  string
		want []string
	}{
		"an update": {
			"update turnkeeper.t as x set a = $1, b = least(x.c, 5) where x.d_at < now() returning id",
			[]string{
				"drop a column: a = $1 -> ", "drop a column: b = least(x.c, 5) -> ", "move a limit: 5 -> 5 + 1",
				"move a limit: < -> <=",
				"now for a time: now() -> now() + 1 h", "now for a time: x.d_at -> now()",
			},
		},
		"an insert": {
			"insert into turnkeeper.t (a, b) select m.x, f(m.y, m.z) from m order by m.id for update skip locked on conflict (a) do update set b = excluded.b",
			[]string{
				"drop a column: b = excluded.b -> ", "drop a column: f(m.y, m.z) -> null", "drop a column: m.x -> null",
				"drop a lock: for update skip locked -> ", "drop an order: order by m.id -> ",
				"swap arguments: m.y, m.z -> m.z, m.y",
				"zero a value: m.y -> null", "zero a value: m.z -> null",
			},
		},
		"a view": {"create view turnkeeper.v as select m.a, coalesce(m.b, 1) as c from m;", []string{
			"drop a column: coalesce(m.b, 1) -> null", "drop a column: m.a -> null", "move a limit: 1 -> 1 + 1",
			"swap arguments: m.b, 1 -> 1, m.b",
			"zero a value: 1 -> null", "zero a value: m.b -> null",
		}},
		"a function": {
			"create function f(p_a text, p_b text) returns void language plpgsql as $$ begin if p_a = 'x' then perform g(p_b); end if; n := p_a; o := p_b; delete from t where t.a = o; delete from u; perform g(1); end $$;",
			[]string{
				"another variable: p_a -> p_b", "another variable: p_a -> p_b", "another variable: p_b -> p_a",
				"another variable: p_b -> p_a",
				"drop a statement: delete from t where t.a = o; -> ", "drop a statement: delete from u; -> ",
				"drop a statement: n := p_a; -> ",
				"drop a statement: o := p_b; -> ", "drop a statement: perform g(1); -> ",
				"drop a statement: perform g(p_b); -> ",
				"move a limit: 1 -> 1 + 1",
				"swap statements: delete from u; perform g(1); -> perform g(1); delete from u;",
				"swap statements: o := p_b; delete from t where t.a = o; -> delete from t where t.a = o; o := p_b;",
				"zero a value: 1 -> null", "zero a value: p_b -> null",
			},
		},
	} {
		var got []string
		for operator, changes := range changesOf(c.sql) {
			for _, change := range changes {
				got = append(got, operator+": "+change.before+" -> "+change.after)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTestsNearAMutantRunWithoutABudget(t *testing.T) {
	near, far := &test{pkg: "./agentturn/prompt", took: time.Hour}, &test{pkg: "./tests/core", took: time.Second}
	slow := &test{pkg: "./jobs", took: time.Minute}
	m := &Mutant{File: "agentturn/asks.go", reaching: []*test{far, slow, near}}
	for name, c := range map[string]struct {
		r    runner
		m    *Mutant
		want []*test
	}{
		"in a sample":   {runner{budget: 30 * time.Second, sampled: map[string][]string{}}, m, []*test{far, near}},
		"of a target":   {runner{budget: 30 * time.Second}, m, []*test{far}},
		"without limit": {runner{}, m, []*test{far, slow, near}},
		"in SQL": {
			runner{budget: time.Second, sampled: map[string][]string{}}, &Mutant{Query: "Snapshot",
				reaching: m.reaching},
			[]*test{far, slow},
		},
	} {
		if got := c.r.within(c.m); !slices.Equal(got, c.want) {
			t.Errorf("%s: %d tests run, want %d", name, len(got), len(c.want))
		}
	}
	for path, want := range map[string]string{
		"storage/journal/a.go": "storage", "internal/app/setup/a.go": "internal/app", "tools/a.go": "tools",
		"client/a.go": "client",
	} {
		if got := topFolder(path); got != want {
			t.Errorf("%s is in %s, want %s", path, got, want)
		}
	}
}
