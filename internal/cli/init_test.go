package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/config"
)

// nothingSet is an environment without any setting.
func nothingSet(string) (string, bool) { return "", false }

// TestInit checks that the files of init pass the check without warnings, and still do with their settings uncommented.
func TestInit(t *testing.T) {
	t.Chdir(t.TempDir())
	got := run(t, turnctl.Program(), nil, "", "init", "-o", "json")
	made := decode[struct{ Written, Next []string }](t, got)
	if diff := cmp.Diff([]string{"turnkeeper.yaml", filepath.Join("agents", "helper.md")}, made.Written); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(made.Next) != 3 || !strings.HasSuffix(made.Next[0], "turnctl agents check") ||
		!strings.HasSuffix(made.Next[1], "worker") ||
		!strings.Contains(made.Next[2], `enqueue --agent helper --wait "`) {
		t.Errorf("next are %q", made.Next)
	}
	if got := run(t, turnctl.Program(), nil, "", "agents", "check"); got.code != 0 ||
		got.stdout != "✓ helper\n1 agent in ./agents, no errors\n" || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	text, err := os.ReadFile("turnkeeper.yaml")
	if err != nil {
		t.Fatal(err)
	}
	setting := regexp.MustCompile(`(?m)^#([a-z]| {2,})`)
	if n := len(setting.FindAll(text, -1)); n < 10 {
		t.Errorf("%d settings are written as comments", n)
	}
	if err := os.WriteFile("turnkeeper.yaml", setting.ReplaceAll(text, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.LoadOptions{Env: nothingSet})
	if err != nil || cfg.DefaultModel != "local/llama3.2" || cfg.WorkerSlots != 4 {
		t.Errorf("its settings are %+v, error %v", cfg, err)
	}
	agent, err := os.ReadFile(made.Written[1])
	if err != nil {
		t.Fatal(err)
	}
	setting = regexp.MustCompile(`(?m)^# ((model|schedule):| {2})`)
	if err := os.WriteFile(made.Written[1], setting.ReplaceAll(agent, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"OPENAI_API_KEY": "a key of nobody"}
	if got := run(t, turnctl.Program(), env, "", "agents", "check", "-o", "json"); got.code != 0 ||
		!strings.Contains(got.stdout, `"problems": []`) {
		t.Errorf("%+v", got)
	}
}

// TestInitTellsWhatIsNext checks that the text output ends with the next commands to type.
func TestInitTellsWhatIsNext(t *testing.T) {
	t.Chdir(t.TempDir())
	got := run(t, turnctl.Program(), nil, "", "init")
	lines := strings.Split(got.stdout, "\n")
	if got.code != 0 || len(lines) != 6 || lines[0] != "wrote turnkeeper.yaml and agents/helper.md" ||
		!strings.Contains(lines[4], "enqueue --agent helper --wait") {
		t.Errorf("%+v", got)
	}
}

func TestInitRefusesAnotherConfigFile(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"flag":     {nil, []string{"--config", "other.yaml"}},
		"variable": {map[string]string{"TURNKEEPER_CONFIG": "other.yaml"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			got := run(t, turnctl.Program(), c.env, "", append([]string{"init"}, c.args...)...)
			if got.code != 2 || !strings.Contains(got.stderr, "omit --config") {
				t.Errorf("%+v", got)
			}
			if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
				t.Errorf("it wrote %v, error %v", entries, err)
			}
		})
	}
}

// TestInitNeverOverwrites checks that init never changes existing files, and writes nothing if it refuses.
func TestInitNeverOverwrites(t *testing.T) {
	for name, there := range map[string]string{"settings": "turnkeeper.yaml", "an agent": filepath.Join("agents",
		"helper.md")} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.MkdirAll(filepath.Dir(there), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				got := run(t, turnctl.Program(), nil, "", "init")
				if got.code != 6 || got.stdout != "" || !strings.Contains(got.stderr,
					there+" already exists: nothing was written") {
					t.Errorf("%+v", got)
				}
			}
			if text, err := os.ReadFile(there); err != nil || string(text) != "mine" {
				t.Errorf("it is %q now, error %v", text, err)
			}
			files := 0
			err := filepath.WalkDir(".", func(_ string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					files++
				}
				return err
			})
			if err != nil || files != 1 {
				t.Errorf("%d files, error %v", files, err)
			}
		})
	}
	t.Run("a folder that cannot be written to", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("agents", nil, 0o600); err != nil { // a file where init would create a folder
			t.Fatal(err)
		}
		got := run(t, turnctl.Program(), nil, "", "init")
		if _, err := os.Lstat("turnkeeper.yaml"); got.code != 1 || err == nil || !strings.Contains(got.stderr,
			"nothing was written") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
