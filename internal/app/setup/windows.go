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

// A WindowSource is the source of a model's context window.
type WindowSource string

// The sources in order of precedence.
const (
	WindowSet     WindowSource = "models: in the config file"
	WindowTable   WindowSource = "the table of known models"
	WindowServed  WindowSource = "the server"
	WindowAssumed WindowSource = "assumed"
)

// A ModelWindow is the context window used for a model.
type ModelWindow struct {
	Model  string
	Tokens int
	Source WindowSource

	failed  string // why asking the server failed; empty: not asked, or no answer about the window
	profile string
}

func (w ModelWindow) String() string {
	from := string(w.Source)
	if w.Source == WindowTable {
		from += " of " + modeltable.Date()
	}
	return fmt.Sprintf("%s %s tokens (%s)", w.Model, thousands(w.Tokens), from)
}

// Warning returns a warning and advice if the window is assumed; else empty texts.
func (w ModelWindow) Warning() (what, advice string) {
	if w.Source != WindowAssumed {
		return "", ""
	}
	why := ""
	switch {
	case w.failed != "":
		why = " (the provider " + w.failed + ")"
	case w.profile == "ollama":
		why =
			" (Ollama reports it once the model is loaded; its default is this small unless OLLAMA_CONTEXT_LENGTH or num_ctx is set)"
	}
	return fmt.Sprintf("the context window of %s is unknown%s: assuming %s tokens", w.Model, why, thousands(w.Tokens)),
		"set context_window for it under models: in the config file, or in the agent's file"
}

// thousands formats a number like 32,768.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Assumed windows in tokens. Ollama silently cuts longer requests, so its smallest default is assumed.
const (
	assumedWindow       = 32768
	assumedOllamaWindow = 4096
)

// CheckWindows returns the context window of each model that agents use, except where the agent sets
// context_window. Servers are asked, at most for checkTime, for models that neither the settings nor the
// table have.
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

// WindowsNeeded returns the models used by agents that do not set context_window, sorted.
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

// windows looks up context windows of models, and asks servers for unknown ones. It is safe for
// concurrent use.
type windows struct {
	cfg     *config.Config
	clients map[string]*openai.Client // by provider
	again   chan struct{}             // has a value if wanted is not empty

	mu     sync.Mutex
	served map[string]int    // windows reported by servers
	failed map[string]string // why asking a model's server failed
	wanted map[string]bool   // models to ask for again
}

func newWindows(cfg *config.Config, clients map[string]*openai.Client) *windows {
	return &windows{cfg: cfg, clients: clients, again: make(chan struct{}, 1),
		served: map[string]int{}, failed: map[string]string{}, wanted: map[string]bool{}}
}

// of returns the window of a model as known now.
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
	if tokens, ok := w.served[name]; ok {
		known.Tokens, known.Source = tokens, WindowServed
		return known
	}
	known.Tokens, known.Source, known.failed = assumedWindow, WindowAssumed, w.failed[name]
	if known.profile == "ollama" {
		known.Tokens = assumedOllamaWindow
	}
	return known
}

// Learn asks servers, in parallel, for windows with no other source, and returns the window of each
// model.
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
		return // reported as a fault of the settings
	}
	tokens, err := client.Window(ctx, model)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.failed, name)
	if err != nil {
		w.failed[name], _ = reachFailure(err, w.cfg.Providers[provider])
	} else if tokens > 0 {
		w.served[name] = tokens
	}
}

// want requests that a model's server is asked again if its answer may differ now: it could not be
// reached, or loads models when they are used.
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

// askAgainAfter is the delay before a server is asked again after a turn used an unknown window: the
// turn's request may load the model meanwhile.
const askAgainAfter = 3 * time.Second

// KeepAsking asks servers for the wanted windows until ctx ends.
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
			if known.Source == WindowServed {
				log.Info("the server now reports the context window of a model", zap.String("model", known.Model),
					zap.Int("context_window", known.Tokens))
			}
		}
	}
}

// Tell logs the windows in use, and warns once for each model with an assumed window.
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
