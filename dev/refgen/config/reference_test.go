package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
)

func TestCommittedReferenceIsCurrent(t *testing.T) {
	committed, err := os.ReadFile("../../" + target)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(committed), reference()); diff != "" {
		t.Errorf("docs/configuration.md is not current: run go generate ./internal/config\n%s", diff)
	}
}

func TestReferenceHoldsEverySettingAndKey(t *testing.T) {
	text := reference()
	var wanted []string
	for _, s := range config.Settings() {
		wanted = append(wanted, s.Name, "--"+s.Flag, s.Env)
	}
	for _, k := range slices.Concat(config.ProviderKeys, config.ModelKeys, config.ToolKeys) {
		wanted = append(wanted, k.Name)
	}
	for _, k := range agentdef.Keys() {
		wanted = append(wanted, k.Name)
	}
	for _, name := range wanted {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s is missing", name)
		}
	}
}
