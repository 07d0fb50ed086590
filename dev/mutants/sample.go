package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A group is a part of the code with its share of a sample.
type group struct {
	name  string
	share float64
	sql   bool
}

// Two thirds of a sample are in the core, and of these a third in SQL.
var groups = []group{{"core", 0.45, false}, {"SQL of the core", 0.22, true}, {"elsewhere", 0.33, false}}

// core lists the folders of the core packages. The SQL belongs to storage.
var core = []string{"storage", "scheduler", "jobs", "agentturn", "asks", "policy", "outputs"}

// notTested are packages whose tests say nothing about what the programs do, or about these very mutants.
var notTested = regexp.MustCompile(
	`^turnkeeper/(internal/(mutants|archtest|bench)|deploy|protocol|examples|worker)(/|$)`)

func groupOf(folder string, sql bool) string {
	top, _, _ := strings.Cut(folder, "/")
	switch {
	case sql:
		return "SQL of the core"
	case slices.Contains(core, top):
		return "core"
	}
	return "elsewhere"
}

// A drawn mutant is a spot in Go or a change of a query, function or view.
type drawn struct {
	spot
	change
	name, kind string // of the query, function or view; kind is query or schema
}

// A lot holds what may be drawn of a group, by operator.
type lot map[string][]drawn

// lots returns what may be drawn of code in these folders, or of all code, by group.
func lots(g *ground, root string, in folders) (map[string]lot, error) {
	all := map[string]lot{}
	for _, group := range groups {
		all[group.name] = lot{}
	}
	for _, s := range g.spots {
		if in.have(s.pkg) {
			l := all[groupOf(s.pkg, false)]
			l[s.operator] = append(l[s.operator], drawn{spot: s})
		}
	}
	texts, err := sqlTexts(root)
	if err != nil {
		return nil, err
	}
	l := all[groupOf("", true)]
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !in.have(sqlFolders[texts[name].kind]) {
			continue
		}
		changes := changesOf(texts[name].text)
		for _, operator := range slices.Sorted(maps.Keys(changes)) {
			for _, c := range changes[operator] {
				c.operator = operator
				l[operator] = append(l[operator], drawn{change: c, name: name, kind: texts[name].kind})
			}
		}
	}
	return all, nil
}

// sqlFolders are the folders of the SQL, by kind of text.
var sqlFolders = map[string]string{"query": "storage/queries", "schema": "migrations"}

// folders are paths from the root. None means all.
type folders []string

// have reports whether a folder is one of these, or below one.
func (f folders) have(folder string) bool {
	return len(f) == 0 || slices.ContainsFunc(f, func(in string) bool {
		return folder == in || strings.HasPrefix(folder, in+"/")
	})
}

// A sqlText is the text of a query, or of a function or view of the schema.
type sqlText struct{ kind, text string }

var objects = regexp.MustCompile(`(?m)^create (?:or replace )?(?:function|view) turnkeeper\.(\w+)`)

// sqlTexts returns the texts of all queries, functions and views, by name.
func sqlTexts(root string) (map[string]sqlText, error) {
	texts := map[string]sqlText{}
	files, err := filepath.Glob(filepath.Join(root, "migrations", "*.up.sql"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range objects.FindAllStringSubmatch(string(content), -1) {
			_, _, text, err := schemaFunction(root, found[1])
			if err != nil {
				return nil, err
			}
			texts[found[1]] = sqlText{"schema", text}
		}
	}
	if files, err = filepath.Glob(filepath.Join(root, queriesPackage, "*.sql.go")); err != nil {
		return nil, err
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range constant_.FindAllStringSubmatch(string(source), -1) {
			texts[found[1]] = sqlText{"query", strings.Trim(found[2], "`")}
		}
	}
	return texts, nil
}

// pick draws an operator by its weight, and then one of its spots. A lot is never empty.
func (l lot) pick(random *rand.Rand, weights map[string]int) drawn {
	sum := 0
	operators := slices.Sorted(maps.Keys(l))
	for _, o := range operators {
		sum += weights[o]
	}
	at := random.IntN(sum)
	for _, o := range operators {
		if at -= weights[o]; at < 0 {
			return l[o][random.IntN(len(l[o]))]
		}
	}
	panic("unreachable")
}

func (d drawn) overlaps(o drawn) bool {
	if d.name != o.name || d.path != o.path || d.name != "" {
		return d.name != "" && d.name == o.name && d.change == o.change
	}
	for _, x := range d.edits {
		for _, y := range o.edits {
			if x.start < y.end && y.start < x.end {
				return true
			}
		}
	}
	return false
}

// draw draws n mutants that the compiler takes, the same ones for the same seed and source.
func draw(g *ground, root string, in folders, n int, seed uint64) (*mutantSet, error) {
	all, err := lots(g, root, in)
	if err != nil {
		return nil, err
	}
	shares := 0.0
	for _, group := range groups {
		if len(all[group.name]) > 0 {
			shares += group.share
		}
	}
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a sample can be drawn again
	ids, sql := map[int]spot{}, []drawn{}
	var taken []drawn
	next := 1
	for _, group := range groups {
		weights := goOperators
		if group.sql {
			weights = sqlOperators
		}
		if len(all[group.name]) == 0 {
			continue
		}
		for left := int(float64(n)*group.share/shares + 0.5); left > 0; {
			d := all[group.name].pick(random, weights)
			if slices.ContainsFunc(taken, d.overlaps) {
				continue
			}
			taken = append(taken, d)
			if group.sql {
				sql = append(sql, d)
				left--
				continue
			}
			if _, refused, err := g.planted(map[int]spot{next: d.spot}); err != nil {
				return nil, err
			} else if !refused[next] {
				ids[next] = d.spot
				left--
				next++
			}
		}
	}
	return sampled(g, root, ids, sql)
}

// sampled returns the set of the mutants that were drawn.
func sampled(g *ground, root string, ids map[int]spot, sql []drawn) (*mutantSet, error) {
	overlay, _, err := g.planted(ids)
	if err != nil {
		return nil, err
	}
	s := &mutantSet{root: root, overlay: overlay}
	for id := 1; id <= len(ids); id++ {
		m := ids[id]
		s.mutants = append(s.mutants, Mutant{ID: id, File: m.path, Line: m.line, Function: m.function,
			Operator: m.operator, Before: m.before, After: m.after})
	}
	names := map[string][]string{}
	for _, d := range sql {
		if !slices.Contains(names[d.kind], d.name) {
			names[d.kind] = append(names[d.kind], d.name)
		}
	}
	of := func(name, _ string) (changes []change) {
		for _, d := range sql {
			if d.name == name {
				changes = append(changes, d.change)
			}
		}
		return changes
	}
	if err := s.addQueries(names["query"], of); err != nil {
		return nil, err
	}
	if err := s.addFunctions(names["schema"], of); err != nil {
		return nil, err
	}
	number(s.mutants)
	return s, nil
}

// runSample draws a sample and runs all tests that reach its mutants.
func runSample(ctx context.Context, r runner, in folders, n int, seed uint64) error {
	r.target.Name = fmt.Sprintf("sample-%d", seed)
	r.out = filepath.Join(r.root, "bin", "mutants", r.target.Name)
	paths, err := programPackages(ctx, r.root)
	if err != nil {
		return err
	}
	g, err := survey(r.root, paths...)
	if err != nil {
		return err
	}
	if r.set, err = draw(g, r.root, in, n, seed); err != nil {
		return err
	}
	texts, err := sqlTexts(r.root)
	if err != nil {
		return err
	}
	r.sampled, r.raced = callers(texts), &races{all: map[string]error{}}
	for _, m := range r.set.mutants { // whose calls to count
		for _, name := range append([]string{m.Schema}, r.sampled[m.Schema]...) {
			if texts[name].kind == "schema" && !slices.Contains(r.target.Functions, name) {
				r.target.Functions = append(r.target.Functions, name)
			}
		}
	}
	if r.target.Tests, err = testPackages(ctx, r.root); err != nil {
		return err
	}
	if r.near {
		r.target.Tests = slices.DeleteFunc(r.target.Tests, func(pkg string) bool {
			return !slices.ContainsFunc(r.set.mutants, func(m Mutant) bool { return isNear(&m, &test{pkg: pkg}) })
		})
	}
	sum, err := r.run(ctx)
	if err != nil {
		return err
	}
	say("%s: %s\n", r.target.Name, sum)
	return nil
}

// testPackages returns the packages with tests that may find a mutant.
func testPackages(ctx context.Context, root string) (found []string, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}",
		"./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages with tests: %w", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if !notTested.MatchString(path) {
			found = append(found, "."+strings.TrimPrefix(path, "turnkeeper"))
		}
	}
	return found, nil
}

// callers returns for each function and view of the schema the names of the queries and functions that use it, also
// through others.
func callers(texts map[string]sqlText) map[string][]string {
	direct := map[string][]string{}
	for name, t := range texts {
		for _, token := range sqlTokens(t.text) {
			if used, ok := strings.CutPrefix(token.text, "turnkeeper."); ok && used != name &&
				texts[used].kind == "schema" {
				direct[used] = append(direct[used], name)
			}
		}
	}
	all := map[string][]string{}
	for name := range direct {
		seen, open := map[string]bool{name: true}, []string{name}
		for len(open) > 0 {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			for _, user := range direct[last] {
				if !seen[user] {
					seen[user] = true
					open = append(open, user)
					all[name] = append(all[name], user)
				}
			}
		}
	}
	return all
}

// tallies counts the verdicts of a sample by group and by folder.
func tallies(mutants []*Mutant) string {
	by, folders := map[string]tally{}, map[string]tally{}
	for _, m := range mutants {
		one := tallyOf(m)
		folder := filepath.Dir(m.File)
		group := groupOf(folder, m.Query+m.Schema != "")
		for counts, key := range map[*map[string]tally]string{&by: group, &folders: folder} {
			sum := (*counts)[key]
			sum.add(one)
			(*counts)[key] = sum
		}
	}
	var b strings.Builder
	for _, counts := range []map[string]tally{folders, by} {
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, "%-28s %s\n", key, counts[key])
		}
		b.WriteString("\n")
	}
	return b.String()
}
