package app_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper/agentdef"
	"turnkeeper/internal/testrun"
)

// An agentRow is a key of an agent's file: two values that are not the default, and what is observed with each, and
// without the key.
type agentRow struct {
	key    string
	as     string    // of a second row of the key: the name of its agents
	values [2]string // of the key; the last word of a nested key is set in with
	with   string    // the rest of the file's settings; %s: the line of the key, else it is added
	see    func(k talk) string
	want   [3]string // with the first value, with the second, without the key
}

// front returns the settings of the row's agent: of a value, or without the key.
func (r agentRow) front(value int) string {
	line := ""
	if value < len(r.values) {
		line = r.key[strings.LastIndex(r.key, ".")+1:] + ": " + r.values[value]
	}
	with := r.with
	if !strings.Contains(with, "%s") {
		with += "\n%s"
	}
	return strings.ReplaceAll(with, "%s", line)
}

// name returns the name of an agent of the row.
func (r agentRow) name(n int) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(cmp.Or(r.as, r.key), ".", "-"), n)
}

// TestEverySettingOfAnAgentHasAnEffect runs two agents for each key of an agent's file, which differ in its value. Then
// the worker reads the files again: the first agent has the second value now, and the second has none.
func TestEverySettingOfAnAgentHasAnEffect(t *testing.T) {
	testrun.Slow(t)
	w := newWorldForAgents(t, append(lines(ownBounds, ""), "worker_slots: 200")...)
	rows := agentRows(w)
	wantRows(t, agentdef.Keys(), rows)
	w.writeAgents(rows, 0)
	w.start()
	w.observeAgents(rows, 0)
	w.writeAgents(rows, 1)
	w.again()
	w.observeAgents(rows, 1)
}

// wantRows checks that each key without keys below it has one row.
func wantRows(t *testing.T, keys []agentdef.Key, rows []agentRow) {
	for _, key := range keys {
		if slices.ContainsFunc(keys, func(k agentdef.Key) bool { return strings.HasPrefix(k.Name, key.Name+".") }) {
			continue
		}
		n := 0
		for _, r := range rows {
			if r.key == key.Name {
				n++
			}
		}
		if n == 0 {
			t.Errorf("the key %s has no row: add one, so that a test fails if it has no effect", key.Name)
		}
	}
	for _, r := range rows {
		if !slices.ContainsFunc(keys, func(k agentdef.Key) bool { return k.Name == r.key }) {
			t.Errorf("the row %s is of no key", r.key)
		}
		if r.want[0] == r.want[1] || r.want[0] == r.want[2] {
			t.Errorf("the row %s does not tell its values apart", r.key)
		}
	}
}

// writeAgents writes the files: in phase 0 agent n has value n, in phase 1 value n+1.
func (w *settingsWorld) writeAgents(rows []agentRow, phase int) {
	for _, r := range rows {
		for n := range 2 {
			w.write(r.name(n), strings.ReplaceAll(r.front(n+phase), "%a", r.name(n)))
		}
	}
}

func (w *settingsWorld) observeAgents(rows []agentRow, phase int) {
	w.t.Run(fmt.Sprintf("phase %d", phase), func(t *testing.T) {
		for _, r := range rows {
			t.Run(cmp.Or(r.as, r.key), func(t *testing.T) {
				t.Parallel()
				for n := range 2 {
					k := w.talk(t, r.name(n), fmt.Sprintf("phase-%d", phase))
					if got, want := r.see(k), r.want[n+phase]; got != want {
						t.Errorf("with %q:\n%s\nwant\n%s", r.front(n+phase), got, want)
					}
				}
			})
		}
	})
}
