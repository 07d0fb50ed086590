package main

import (
	"path/filepath"
	"testing"
)

const root = "../.."

// TestTargets makes all mutants, without running one: each target names what there is, and each
// mutant of equivalent.txt is one that is made.
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
		w, err := makeMutants(root, target, nil)
		if err != nil {
			t.Errorf("%s: %v", target.Name, err)
			continue
		}
		t.Logf("%s: %d mutants", target.Name, len(w.mutants))
		if len(w.mutants) == 0 {
			t.Errorf("%s has no mutants", target.Name)
		}
		for _, m := range w.mutants {
			made[m.Key()] = true
		}
	}
	for key, reason := range listed {
		if !made[key] {
			t.Errorf("equivalent.txt lists a mutant that is not made any more: %s", key)
		}
		if reason == "" {
			t.Errorf("equivalent.txt gives no reason for %s", key)
		}
	}
}
