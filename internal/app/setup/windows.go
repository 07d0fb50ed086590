package setup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/agentdef"
	"turnkeeper/inference/modeltable"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/config"
)

// A WindowSource says where the context window of a model is known from.
type WindowSource string

// The sources, the strongest first.
const (
	WindowSet     WindowSource = "models: in the config file"
	WindowTable   WindowSource = "the table of known models"
	WindowTold    WindowSource = "the server"
	WindowAssumed WindowSource = "assumed"
)

// A ModelWindow is the context window that a model is taken to have.
type ModelWindow struct {
	Model  string
	Tokens int
	Source WindowSource

	failed  string // why the server could not be asked; empty: it was not, or does not tell
	profile string
}

func (w ModelWindow) String() string {
	from := string(w.Source)
	if w.Source == WindowTable {
		from += " of " + modeltable.Date()
	}
	return fmt.Sprintf("%s %s tokens (%s)", w.Model, thousands(w.Tokens), from)
}

// Warning says what may not be meant, and what to do; empty: the window is known.
func (w ModelWindow) Warning() (what, advice string) {
	if w.Source != WindowAssumed {
		return "", ""
	}
	why := ""
	switch {
	case w.failed != "":
		why = " (the provider " + w.failed + ")"
	case w.profile == "ollama":
		why = " (Ollama tells it once the model is loaded, and gives models this little unless OLLAMA_CONTEXT_LENGTH or num_ctx says otherwise)"
	}
	return fmt.Sprintf("the context window of %s is not known%s: %s tokens are assumed", w.Model, why, thousands(w.Tokens)),
		"set context_window for it under models: in the config file, or in the agent's file"
}

// thousands writes a number as 32,768.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Windows that are assumed where nothing is known, in tokens. Ollama cuts longer requests without
// a word, so it is taken at its smallest default.
const (
	assumedWindow       = 32768
	assumedOllamaWindow = 4096
)

// CheckWindows says for each model that an agent would ask which context window it is taken to
// have. Models with a window of the agent's own are left out. Servers are asked where neither the
// settings nor the table have the model, at most for checkTime.
func CheckWindows(ctx context.Context, cfg *config.Config, agents []*agentdef.Definition) []ModelWindow {
	clients := map[string]*openai.Client{}
	for name, p := range cfg.Providers {
		if client, err := newClient(p, checkTime, nil, zap.NewNop()); err == nil {
			clients[name] = client
			defer client.Close()
		}
	}
	w := newWindows(cfg, clients)
	return w.Learn(ctx, WindowsNeeded(cfg, agents))
}

// WindowsNeeded are the models whose windows the agents do not give themselves, sorted.
func WindowsNeeded(cfg *config.Config, agents []*agentdef.Definition) []string {
	names := map[string]bool{}
	for _, d := range agents {
		for _, m := range modelsOf(d, cfg) {
			own := d.ContextWindow > 0 && m.key != "extraction_model"
			if provider, _, _ := strings.Cut(m.name, "/"); provider != demoProvider && !own {
				names[m.name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// windows knows the context windows of models, and asks servers for those that only they know. It
// is safe for concurrent use.
type windows struct {
	cfg     *config.Config
	clients map[string]*openai.Client // by provider
	again   chan struct{}             // something in wanted

	mu     sync.Mutex
	told   map[string]int    // by servers
	failed map[string]string // models whose servers could not be asked, and why
	wanted map[string]bool   // to be asked for again
}

func newWindows(cfg *config.Config, clients map[string]*openai.Client) *windows {
	return &windows{cfg: cfg, clients: clients, again: make(chan struct{}, 1),
		told: map[string]int{}, failed: map[string]string{}, wanted: map[string]bool{}}
}

// of is the window of a model by what is known now.
func (w *windows) of(name string) ModelWindow {
	provider, model, _ := strings.Cut(name, "/")
	p := w.cfg.Providers[provider]
	known := ModelWindow{Model: name, profile: p.Profile.Name}
	if set := w.cfg.Models[name].ContextWindow; set > 0 {
		known.Tokens, known.Source = set, WindowSet
		return known
	}
	if tokens, ok := modeltable.Lookup(p.Profile.Name, p.BaseURL, model); ok {
		known.Tokens, known.Source = tokens, WindowTable
		return known
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if tokens, ok := w.told[name]; ok {
		known.Tokens, known.Source = tokens, WindowTold
		return known
	}
	known.Tokens, known.Source, known.failed = assumedWindow, WindowAssumed, w.failed[name]
	if known.profile == "ollama" {
		known.Tokens = assumedOllamaWindow
	}
	return known
}

// Learn asks servers for the windows of the models that nothing else knows, all at once, and
// returns what is known of each model then.
func (w *windows) Learn(ctx context.Context, names []string) []ModelWindow {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, errNoAnswer)
	defer cancel()
	var asking sync.WaitGroup
	for _, name := range names {
		if w.of(name).Source == WindowAssumed {
			asking.Go(func() { w.ask(ctx, name) })
		}
	}
	asking.Wait()
	var all []ModelWindow
	for _, name := range names {
		all = append(all, w.of(name))
	}
	return all
}

func (w *windows) ask(ctx context.Context, name string) {
	provider, model, _ := strings.Cut(name, "/")
	client, ok := w.clients[provider]
	if !ok {
		return // a fault that is reported elsewhere
	}
	tokens, err := client.Window(ctx, model)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.failed, name)
	if err != nil {
		w.failed[name], _ = reachFailure(err, w.cfg.Providers[provider])
	} else if tokens > 0 {
		w.told[name] = tokens
	}
}

// want has a model's server asked again, if it may tell more by now: it could not be reached, or
// loads its models when they are used.
func (w *windows) want(known ModelWindow) {
	if known.Source != WindowAssumed || known.failed == "" && known.profile != "ollama" {
		return
	}
	w.mu.Lock()
	w.wanted[known.Model] = true
	w.mu.Unlock()
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// askAgainAfter is how long after a turn has met an unknown window its server is asked again: the
// turn's own request may load the model meanwhile.
const askAgainAfter = 3 * time.Second

// KeepAsking asks again for what is wanted, until ctx ends.
func (w *windows) KeepAsking(ctx context.Context, log *zap.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.again:
		}
		timer := time.NewTimer(askAgainAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		w.mu.Lock()
		names := slices.Sorted(maps.Keys(w.wanted))
		clear(w.wanted)
		w.mu.Unlock()
		for _, known := range w.Learn(ctx, names) {
			if known.Source == WindowTold {
				log.Info("the server tells the context window of a model now", zap.String("model", known.Model), zap.Int("context_window", known.Tokens))
			}
		}
	}
}

// Tell logs which windows are in use, and warns of those that are assumed. A model that was
// warned of is not warned of again.
func (w *windows) Tell(all []ModelWindow, warned map[string]bool, log *zap.Logger) {
	var inUse []string
	for _, known := range all {
		inUse = append(inUse, known.String())
		if what, advice := known.Warning(); what != "" && !warned[known.Model] {
			warned[known.Model] = true
			log.Warn(what+"; "+advice, zap.String("model", known.Model), zap.Int("context_window", known.Tokens))
		}
	}
	if len(inUse) > 0 {
		log.Info("context windows", zap.Strings("models", inUse))
	}
}
