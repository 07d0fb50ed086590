package setup_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/testrun"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// agentsWithFaults are files of an agents folder that have, together, a fault and a warning of every kind.
var agentsWithFaults = map[string]string{
	"good.md":     "---\ntools: [clock]\n---\nHi.\n",
	"LOUD.MD":     "---\n---\nHi.\n",
	"syntax.md":   "---\nlane: x\nmodle: y\nmodel: nowhere/x\n---\nHi.\n",
	"none.md":     "Hi.\n",
	"bounds.md":   "---\n# three faults\nmax_duration: 300s\nbudget:\n  turn_tokens: 1\n  day_tokens: 4096\nmodel: demo/script\n---\nHi.\n",
	"together.md": "---\ntools: [clock]\nmax_duration: 220s\n---\nHi.\n",
	"models.md": "---\nmodel: openai/a\nfallback_models:\n- openrouter/b\n- local/c\n- demo/nothing\n- elsewhere/d\nextraction_model: nowhere/e\n" +
		"levels:\n  low: {model: low/f}\n  critical: {model: critical/g}\n---\nHi.\n",
	"tools.md":     "---\ntools:\n- clokc\n- far\n- spawn_agent\n- missing\n- dirless\n- read_file\n- far_off\npaging: false\n---\nHi.\n",
	"rooted.md":    "---\ntools: [read_file]\nroot: nowhere\n---\nHi.\n",
	"rooted-2.md":  "---\ntools: [read_file]\nroot: agents/good.md\n---\nHi.\n",
	"rooted-3.md":  "---\nroot: agents/good.md/below\n---\nHi.\n",
	"unrooted.md":  "---\ntools: [clock, read_file]\n---\nHi.\n",
	"below.md":     "---\nsub_agents:\n- good\n- syntax\n- nobody\n- nobody-2\ntools:\n- clock\n- spawn_agent\n---\nHi.\n",
	"servers.md":   "---\nmcp_servers:\n  bank: [pay]\n  shop: [buy, look]\n  desk: [print]\n---\nHi.\n",
	"schedules.md": "---\nschedule:\n- {name: a, cron: \"0 9 1 * 1\"}\n- {name: hush-hush-1, cron: \"@daily\"}\n- {name: b, cron: \"@daily\", conversation: of hush-hush-1}\n---\nHi.\n",
	"rules.md":     "---\napprove:\n  pay: bad\n  \"*\": good\n  look: never\n  buy: always\n---\nHi.\n",
	"mine.md":      "---\nmodel: demo/mine\nfallback_models: [demo/spare]\n---\nHi.\n",

	"mine.demo.yaml":   "steps: [{say: Hello.}]\n",
	"spare.demo.yaml":  "steps: [{text: Hello.}]\n",
	"nobody.demo.yaml": "steps: [{say: Hello.}, {say: Hello.}]\n",
	"wide.demo.yaml":   "steps: 5\n",
}

// TestEveryAdviceAboutAgents records the faults and warnings of a folder that has all of them, as a worker reports them
// at its start, a running one, and a program that knows neither all tools nor rules; and those of each file alone.
func TestEveryAdviceAboutAgents(t *testing.T) {
	folder := t.TempDir()
	dir := filepath.Join(folder, "agents")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range agentsWithFaults {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Default()
	cfg.AgentsDir, cfg.DefaultModel = dir, "local/default"
	cfg.Providers["local"] = config.Provider{Name: "local", APIKey: config.NewSecret("hush-hush-1")}
	cfg.Learn("hush-hush-1")
	cfg.MCPServers["shop"], cfg.MCPServers["desk"] = config.MCPServer{Name: "shop"}, config.MCPServer{Name: "desk"}
	cfg.Tools["missing"] = config.Tool{Name: "missing", Description: "Is missing.",
		Command: []string{filepath.Join(folder, "no-such-program")}}
	cfg.Tools["dirless"] = config.Tool{Name: "dirless", Description: "Is dirless.", Command: []string{"true"},
		Dir: filepath.Join(folder, "no-such-folder")}
	registry, err := setup.KnownTools(cfg, noTool("far", true), noTool("shop__buy", false))
	if err != nil {
		t.Fatal(err)
	}
	rules := func(source string) (policy.Rule, error) {
		if source == "good" {
			return policy.Compile(policy.Always, nil)
		}
		return nil, errors.New("it is bad")
	}
	var written strings.Builder
	write := func(title string, report setup.AgentsReport) {
		fmt.Fprintf(&written, "%s\n", title)
		for _, d := range report.Agents {
			fmt.Fprintf(&written, "  agent %s\n", d.Name)
		}
		for _, fault := range report.Faults {
			for line := range strings.Lines(fault.Error()) {
				fmt.Fprintf(&written, "  fault %s\n", strings.TrimSpace(line))
			}
		}
		for _, warning := range report.Warnings {
			fmt.Fprintf(&written, "  warning %s\n", warning)
		}
	}
	start := setup.Toolbox{Registry: registry, Whole: true, Rules: rules}
	write("at the start", setup.CheckAgents(dir, cfg, start))
	running := start
	running.Running = true
	write("a running worker", setup.CheckAgents(dir, cfg, running))
	write("another program", setup.CheckAgents(dir, cfg, setup.Toolbox{Registry: registry}))
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range agentsWithFaults {
			if strings.HasSuffix(name, ".md") && !yield(name) {
				return
			}
		}
	}) {
		write(name+" alone", setup.CheckAgent(filepath.Join(dir, name), cfg, start))
	}
	write("no such file", setup.CheckAgent(filepath.Join(dir, "nobody.md"), cfg, start))
	write("no such folder", setup.CheckAgents(filepath.Join(folder, "nowhere"), cfg, start))
	empty := t.TempDir()
	write("an empty folder", setup.CheckAgents(empty, cfg, start))
	golden.File(t, filepath.Join("testdata", "agents.txt"), strings.NewReplacer(empty, "EMPTY", folder, "DIR").Replace(
		written.String()))
}

func noTool(name string, detached bool) tools.Tool {
	spec := tools.Spec{Name: name, Description: "Does nothing.", Detached: detached, Timeout: time.Hour}
	return tools.New(spec, func(context.Context, tools.Call, struct{}) (tools.Result, error) {
		return tools.Result{}, nil
	})
}

// providersThatAnswer are providers by what their server answers: a status and a body.
var providersThatAnswer = map[string]struct {
	status        int
	body, profile string
	keyless       bool
}{
	"lists": {200,
		`{"data":[{"id":"models/gpt-large"},{"id":"gpt-small"},{"id":"gpt-larger","context_length":70000},{"id":"other"},{"id":"gpt-l"}]}`, "generic", false},
	"empty":       {200, `{"data":[]}`, "generic", false},
	"strange":     {200, `<html>hush-hush-1</html>`, "generic", false},
	"bad_request": {400, `{"error":{"message":"no, hush-hush-1"}}`, "generic", false},
	"refuses":     {401, `{"error":{"message":"bad key hush-hush-1"}}`, "generic", false},
	"wants":       {401, `{"error":{"message":"no key"}}`, "generic", true},
	"forbids":     {403, `{"error":{"message":"not you"}}`, "generic", false},
	"costs":       {402, `{"error":{"message":"pay"}}`, "openrouter", false},
	"quota":       {429, `{"error":{"message":"pay","code":"insufficient_quota"}}`, "openai", false},
	"listless":    {404, `{"error":{"message":"no such page"}}`, "generic", false},
	"methodless":  {405, "", "generic", false},
	"busy":        {429, `{"error":{"message":"slowly"}}`, "generic", false},
	"broken":      {500, `{"error":{"message":"oops"}}`, "generic", false},
	"lacking":     {501, "", "generic", false},
	"overloaded":  {503, "", "generic", false},
	"ollama":      {404, `{}`, "ollama", false},
}

// TestEveryAnswerOfAProvider records what is said of providers by what they answer, and the context windows of their
// models.
func TestEveryAnswerOfAProvider(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(r.URL.Path[1:], "/")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(providersThatAnswer[name].status)
		_, _ = w.Write([]byte(providersThatAnswer[name].body))
	}))
	t.Cleanup(server.Close)
	closed := testrun.ClosedAddress(t)
	cfg := config.Default()
	cfg.Learn("hush-hush-1")
	for name, p := range providersThatAnswer {
		provider := config.Provider{Name: name, BaseURL: server.URL + "/" + name + "/v1",
			Profile: config.Profile{Name: p.profile}}
		if !p.keyless {
			provider.APIKey = config.NewSecret("hush-hush-1")
		}
		cfg.Providers[name] = provider
	}
	cfg.Providers["away"] = config.Provider{Name: "away", BaseURL: "http://" + closed + "/hush-hush-1"}
	cfg.Providers["wrong"] = config.Provider{Name: "wrong", BaseURL: "http://h/v1",
		Headers: map[string]config.Secret{"bad header": config.NewSecret("x")}}
	cfg.Providers["unset"] = config.Provider{Name: "unset", BaseURL: server.URL + "/lists/hush-hush-1"}
	cfg.Missing = []config.MissingSecret{
		{Setting: "providers.unset_2.api_key_env", Problem: "is not of unset"},
		{Setting: "providers.unset.api_key_env",
			Problem: "providers.unset.api_key_env names the variable \"X\", which is not set"},
	}
	var written strings.Builder
	for _, c := range setup.CheckProviders(t.Context(), cfg) {
		fmt.Fprintf(&written, "%s at %s: ok %t, unasked %t\n  %s\n  advice: %s\n", c.Name, c.BaseURL, c.OK, c.Unasked,
			c.Detail, c.Advice)
		for range 2 { // asking changes nothing
			for _, model := range []string{"gpt-larger", "gpt-smaller", "gpt-large", "gpt-small", "gpt-", "gpt",
				"models/gpt", "other", "x"} {
				if c.Lacks(c.Name+"/"+model) || c.Lacks("another/"+model) {
					fmt.Fprintf(&written, "  lacks %s; near: %s\n", model, c.Nearest(c.Name+"/"+model))
				}
			}
		}
	}
	var agents []*agentdef.Definition
	for name := range cfg.Providers {
		agents = append(agents, &agentdef.Definition{Model: name + "/gpt-larger",
			FallbackModels: []string{name + "/other", "demo/script"}})
	}
	cfg.Models["empty/other"] = config.Model{ContextWindow: 1_234_567}
	agents = append(agents,
		&agentdef.Definition{Model: "lists/own", ContextWindow: 5000, ExtractionModel: "lists/extraction"},
		&agentdef.Definition{Model: "openai/gpt-4o"}, &agentdef.Definition{Model: "lists/gpt-4o"})
	windows := setup.CheckWindows(t.Context(), cfg, agents)
	for _, w := range windows {
		what, advice := w.Warning()
		fmt.Fprintf(&written, "%s\n  warning: %s\n  advice: %s\n", w, what, advice)
	}
	text := strings.NewReplacer(server.URL, "SERVER", closed, "CLOSED").Replace(written.String())
	if strings.Contains(text, "hush-hush-1") {
		t.Error("it tells a secret")
	}
	golden.File(t, filepath.Join("testdata", "providers.txt"), text)
}
