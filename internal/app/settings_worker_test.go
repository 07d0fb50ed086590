package app_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"turnkeeper/internal/config"
	"turnkeeper/internal/testrun"
)

// A workerRow is a setting of a worker: two values that are not the default, and what is observed with each.
type workerRow struct {
	name   string
	values [2]string
	with   string // settings of an agent of the row
	see    func(k talk) string
	want   [2]string
}

// TestEverySettingOfAWorkerHasAnEffect runs two workers whose settings all differ. The first has them in variables, the
// second in its file.
func TestEverySettingOfAWorkerHasAnEffect(t *testing.T) {
	wantWorkerRows(t)
	testrun.Slow(t)
	startCollectors(t)
	for world := range 2 {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			t.Parallel()
			var w *settingsWorld
			if world == 0 {
				w = newWorldForAgents(t)
				w.reloadWith(w.given(world, func(s config.Setting) string { return s.Env }), nil)
			} else {
				w = newWorldForAgents(t, fileLines((&settingsWorld{}).given(world, func(s config.Setting) string {
					return s.Name
				}))...)
			}
			rows := workerRows(w)
			w.writeRows(rows)
			w.age()
			w.start()
			t.Run("rows", func(t *testing.T) { w.observe(t, rows, world) })
		})
	}
}

// wantWorkerRows checks that each setting has a row, or is named with the test that checks it.
func wantWorkerRows(t *testing.T) {
	rows := workerRows(&settingsWorld{})
	for _, s := range config.Settings() {
		has := slices.ContainsFunc(rows, func(r workerRow) bool { return r.name == s.Name })
		if where, other := settingsElsewhere[s.Name]; has == other {
			t.Errorf("the setting %s must have a row, or be named with another test: %q", s.Name, where)
		}
	}
	root, err := testrun.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for name, where := range settingsElsewhere {
		if !hasTest(root, where) {
			t.Errorf("the setting %s: there is no test %q", name, where)
		}
	}
	for _, r := range rows {
		if r.want[0] == r.want[1] {
			t.Errorf("the row %s does not tell its values apart", r.name)
		}
	}
}

// hasTest reports whether the module has a test, given as "FOLDER NAME".
func hasTest(root, where string) bool {
	folder, name, _ := strings.Cut(where, " ")
	files, _ := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}

// given returns the values of the rows in a world, by what name returns.
func (w *settingsWorld) given(world int, name func(config.Setting) string) map[string]string {
	given := map[string]string{}
	for _, s := range config.Settings() {
		for _, r := range workerRows(w) {
			if r.name == s.Name {
				given[name(s)] = r.values[world]
				if name(s) == s.Env {
					given[s.Env] = strings.Trim(r.values[world], "'")
				}
			}
		}
	}
	return given
}

// fileLines returns settings as lines of a file, in which those with a point in their name are members of a mapping.
func fileLines(given map[string]string) (all []string) {
	mappings := map[string][]string{}
	for name, value := range given {
		if mapping, key, within := strings.Cut(name, "."); within {
			mappings[mapping] = append(mappings[mapping], key+": "+value)
			delete(given, name)
		}
	}
	for name, members := range mappings {
		given[name] = "{" + strings.Join(members, ", ") + "}"
	}
	return lines(given, "")
}

// writeRows writes the agents of the rows. They set all that agents can set but for the row's own.
func (w *settingsWorld) writeRows(rows []workerRow) {
	for _, r := range rows {
		others := maps.Clone(ownBounds)
		delete(others, r.name)
		w.write(r.agent(), strings.ReplaceAll(r.with, "%a", r.agent())+"\n"+strings.Join(lines(others, r.with), "\n"))
	}
}

func (r workerRow) agent() string { return strings.ReplaceAll(r.name, ".", "-") }

func (w *settingsWorld) observe(t *testing.T, rows []workerRow, world int) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			k := w.talk(t, r.agent(), "main")
			if got := r.see(k); got != r.want[world] {
				t.Errorf("with %q:\n%s\nwant\n%s", r.values[world], got, r.want[world])
			}
		})
	}
}
