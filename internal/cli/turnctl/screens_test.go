package turnctl

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/tools/mcp/mcpdef"
)

// exampleScreens returns lists and pages of filled values.
func exampleScreens() map[string]func(*term.Screen) {
	return map[string]func(*term.Screen){
		"webhooks": func(s *term.Screen) {
			showWebhooks(s, utcNow, []operate.WebhookView{
				golden.Filled[operate.WebhookView](100),
				golden.With(200, func(w *operate.WebhookView) {
					w.PausedAt, w.NotBefore, w.Dead, w.SeenAt, w.Now = time.Time{}, time.Time{}, 0,
						utcNow.Now, utcNow.Now
				}),
				golden.With(300, func(w *operate.WebhookView) {
					w.PausedAt, w.NotBefore, w.SeenAt, w.Now, w.Agents = time.Time{}, time.Time{}, began,
						utcNow.Now, nil
				}),
				{Webhook: outbox.Webhook{Name: "new", SeenAt: began}, Now: began},
			})
		},
		"webhook": func(s *term.Screen) {
			state := func(n int, sending bool, state outbox.DeliveryState) outbox.Delivery {
				return golden.With(n, func(d *outbox.Delivery) { d.State, d.Sending = state, sending })
			}
			showWebhook(s, utcNow, golden.Filled[operate.WebhookView](100), []outbox.Delivery{
				state(200, true, outbox.DeliveryPending), state(300, false, outbox.DeliveryPending),
				state(400, false, outbox.DeliveryDelivered),
				state(500, false, outbox.DeliveryDead), {ID: 1, AskID: 2, Webhook: "shop",
					State: outbox.DeliveryPending, DueAt: began},
			})
			s.Line("")
			showWebhook(s, utcNow, operate.WebhookView{Webhook: outbox.Webhook{Name: "lost"}, Now: began}, nil)
		},
		"tokens": func(s *term.Screen) {
			showTokens(s, utcNow, []operate.Token{golden.Filled[operate.Token](100), {Name: "all",
				Scopes: []string{"read"}, CreatedAt: began}})
		},
		"aside": func(s *term.Screen) {
			showAside(s, utcNow, []granting.Aside{golden.Filled[granting.Aside](100),
				{Subject: granting.Subject{Kind: granting.AsideTick}, Since: began}})
		},
		"levels": func(s *term.Screen) {
			showLevels(s, utcNow, []operate.AgentLevel{
				golden.With(100, func(l *operate.AgentLevel) { l.Used.TokenLimit, l.Used.CallLimit = 1000, 0 }),
				{Agent: "free", Level: survival.Critical, Pin: &operate.Pin{Level: survival.Critical, At: began}},
			})
		},
		"logins": func(s *term.Screen) {
			showLogins(s, utcNow, []loginState{
				{"missing", mcpdef.Login{}}, {"ended", golden.Filled[mcpdef.Login](100)},
				{"expired", mcpdef.Login{LoggedInAt: began, Expires: after(9 * time.Minute)}},
				{"narrow", mcpdef.Login{LoggedInAt: began, RenewedAt: after(time.Minute), Wanted: []string{"w"},
					Scopes: []string{"a", "b"}}},
				{"well", mcpdef.Login{LoggedInAt: began, RenewedAt: after(5 * time.Minute),
					Expires: after(10 * time.Minute), Scopes: []string{"a"}}},
			})
		},
		"agent": func(s *term.Screen) {
			showAgent(s, utcNow, golden.Filled[views.WholeAgent](100))
			showAgent(s, utcNow, views.WholeAgent{Schedules: []views.Schedule{{}}})
		},
		"report": func(s *term.Screen) {
			showReport(s, utcNow, golden.With(100, func(r *agentReport) {
				r.File = ""
				for i := range r.Schedules {
					r.Schedules[i].TimeZone, r.Schedules[i].Agent = "Europe/Berlin", r.Agents[i]
				}
			}))
			showReport(s, utcNow, agentReport{Agents: []string{"one"}, Folder: "agents"})
			showReport(s, utcNow, agentReport{Agents: []string{"one"}, File: "agents/one.md",
				Problems: []string{"wrong"}})
		},
		"mcp-tools": func(s *term.Screen) {
			showMCPTools(s, &config.Config{}, []mcpdef.Tool{
				golden.Filled[mcpdef.Tool](100), golden.With(200, func(tool *mcpdef.Tool) { tool.Gone = false }),
				golden.With(300, func(tool *mcpdef.Tool) { tool.Gone, tool.Pinned = false, tool.Seen }),
			})
		},
		"reply": func(s *term.Screen) {
			showReply(s, utcNow, golden.With(100, func(r *turnkeeper.Reply) {
				r.Outcome, r.Body = turnkeeper.TurnSucceeded, strings.Repeat("A long line. ", 20)+"\nAnd \x1b[31mred."
			}))
			showReply(s, utcNow, turnkeeper.Reply{ID: 7, MessageID: 8, TurnID: 9, Agent: "clerk",
				Outcome: turnkeeper.TurnFailed, CreatedAt: began})
		},
		"retried": func(s *term.Screen) {
			showRetried(s, 7, operate.Retried{Message: 7, DueNow: true})
			showRetried(s, 7, operate.Retried{Message: 8, Repeat: true})
			showRetried(s, 7, operate.Retried{Message: 8})
		},
		"purged": func(s *term.Screen) {
			showPurged(s, s, false, golden.Filled[operate.Purged](100))
			showPurged(s, s, true, operate.Purged{Messages: 1, Turns: 1, Outputs: 1})
		},
		"diff": func(s *term.Screen) {
			printDiff(s, `{"a":1,"b":2}`, `{"a":1,"c":"\u001b[31m"}`)
		},
		"applied": func(s *term.Screen) {
			showApplied(s, []storage.Migration{{Version: 7, Name: "asks"}})
			showApplied(s, nil)
		},
		"pause": func(s *term.Screen) {
			for _, set := range []operate.SchedulerSettings{
				{}, {PausedAt: began, PausedReason: "repairs"},
				{HoldUntil: utcNow.Now, HoldReason: "over"}, {HoldUntil: utcNow.Now.Add(1), HoldReason: "a restore"},
			} {
				showPause(s, utcNow, set)
				showScheduler(s, utcNow, set)
			}
		},
	}
}

// TestScreens compares lists and pages of filled values with testdata: a column with another field's value is seen.
func TestScreens(t *testing.T) {
	for name, show := range exampleScreens() {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			show(&term.Screen{W: &out, Columns: 160})
			golden.File(t, "testdata/screen-"+name+".txt", out.String())
		})
	}
}

// TestEachScreenIsTested checks that a test calls each function that writes to a screen.
func TestEachScreenIsTested(t *testing.T) {
	shows, called := map[string]bool{}, map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.FuncDecl:
				if !strings.HasSuffix(name, "_test.go") && n.Recv == nil && takesScreen(n) {
					shows[n.Name.Name] = true
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && strings.HasSuffix(name, "_test.go") {
					called[f.Name] = true
				}
			}
			return true
		})
	}
	if len(shows) < 20 {
		t.Fatalf("only %d functions were found", len(shows))
	}
	inCLI := []string{"showExplanation", "showTopics"} // TestExplain and others of the package internal/cli run them
	for _, name := range slices.Sorted(maps.Keys(shows)) {
		if !called[name] && !slices.Contains(inCLI, name) {
			t.Errorf("no test calls %s", name)
		}
	}
}

func takesScreen(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool {
		pointer, ok := p.Type.(*ast.StarExpr)
		if !ok {
			return false
		}
		of, ok := pointer.X.(*ast.SelectorExpr)
		return ok && of.Sel.Name == "Screen"
	})
}

// painted finds text in a colour.
var painted = regexp.MustCompile(`\x1b\[(\d+)m(.*?)\x1b\[0m`)

// TestColours compares the colours of all screens with testdata, and the text without them with that of a screen
// without colours.
func TestColours(t *testing.T) {
	t.Parallel()
	names := map[string]string{
		string(term.Bold): "bold", string(term.Dim): "dim", string(term.Good): "good", string(term.Warned): "warned",
		string(term.Bad):    "bad",
		string(term.Active): "active",
	}
	screens := exampleScreens()
	maps.Copy(screens, exampleLists())
	screens["asks"] = func(s *term.Screen) {
		showAsks(s, utcNow, exampleAsks())
		for _, a := range exampleAsks() {
			showAsk(s, utcNow, a)
		}
	}
	for name, facts := range map[string][]fact{"show-ended": endedFacts(), "show-open": openFacts()} {
		screens[name] = func(s *term.Screen) {
			for _, f := range facts {
				x := map[string]func() *explainer{"show-ended": endedTurn, "show-open": runningTurn}[name]()
				f.change(x)
				(&turnPage{Screen: s, Clock: x.Clock, TurnView: x.TurnView}).print()
			}
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(screens)) {
		var plain, coloured bytes.Buffer
		screens[name](&term.Screen{W: &plain, Columns: 160})
		screens[name](&term.Screen{W: &coloured, Columns: 160, Colour: true})
		if got := painted.ReplaceAllString(coloured.String(), "$2"); got != plain.String() {
			t.Errorf("%s: without colours it is\n%s\nand in colours\n%s", name, plain.String(), got)
		}
		seen := map[string]bool{}
		for _, found := range painted.FindAllStringSubmatch(coloured.String(), -1) {
			line := fmt.Sprintf("%-10s %-7s %s\n", name, names[found[1]], found[2])
			heading := found[1] == string(term.Dim) && strings.ToUpper(found[2]) == found[2] && len(found[2]) > 1
			if !seen[line] && !heading {
				b.WriteString(line)
			}
			seen[line] = true
		}
	}
	golden.File(t, "testdata/colours.txt", b.String())
}
