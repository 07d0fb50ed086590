// Package modeltable looks up the context windows of models by name, in a public list that is
// built in (table.txt, which `make models-table` writes).
//
// A wrong window is worse than none: with one that is too large, providers refuse requests or cut
// them silently. A name must therefore match exactly, or without parts that do not affect the
// window: a date, `-latest`, a routing suffix, the prefix of a path. Sizes and variants are never
// removed. The table is not used for servers that people run themselves, because their windows are
// configured.
package modeltable

import (
	_ "embed" // the table
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed table.txt
var text string

// table maps "section/model" to a window in tokens.
var table = sync.OnceValue(func() map[string]int {
	all := map[string]int{}
	for line := range strings.Lines(text) {
		name, window, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(window); ok && err == nil && name != "#" {
			all[name] = n
		}
	}
	return all
})

// Date returns the date of the list that the table was made from, as 2006-01-02.
func Date() string {
	_, rest, _ := strings.Cut(text, "# date: ")
	date, _, _ := strings.Cut(rest, "\n")
	return date
}

// hosts maps the host of an endpoint, or a suffix of it after a dot, to a section of the table.
var hosts = map[string]string{
	"api.openai.com": "openai", "openai.azure.com": "openai", "cognitiveservices.azure.com": "openai",
	"services.ai.azure.com": "openai",
	"api.anthropic.com":     "anthropic", "generativelanguage.googleapis.com": "gemini", "openrouter.ai": "openrouter",
	"api.cerebras.ai": "cerebras", "api.deepseek.com": "deepseek", "api.groq.com": "groq",
	"api.minimax.io": "minimax", "api.moonshot.ai": "moonshot", "api.x.ai": "xai", "api.z.ai": "zai",
}

// profiles maps the profile of a server to a section of the table. An OpenAI profile does
// not imply OpenAI: servers of other models are given it as well.
var profiles = map[string]string{"azure": "openai", "anthropic": "anthropic", "gemini": "gemini",
	"openrouter": "openrouter"}

// selfHosted lists the profiles of servers whose windows are configured.
var selfHosted = []string{"llamacpp", "ollama", "vllm"}

// vendors maps the sections of vendors whose models no other vendor has to the prefixes that
// gateways put before the models' names.
var vendors = map[string][]string{
	"openai": {"", "openai/"}, "anthropic": {"", "anthropic/"}, "gemini": {"", "gemini/", "google/"},
}

// Lookup returns the context window of a model, in tokens. profile and baseURL are those of the
// endpoint that serves the model. ok is false if the table does not know the model.
func Lookup(profile, baseURL, model string) (tokens int, ok bool) {
	if slices.Contains(selfHosted, profile) {
		return 0, false
	}
	host := hostOf(baseURL)
	if section := sectionOf(profile, host); section != "" {
		return find(section, model)
	}
	if isPrivate(host) {
		return 0, false
	}
	for _, section := range slices.Sorted(maps.Keys(vendors)) {
		for _, prefix := range vendors[section] {
			if rest, is := strings.CutPrefix(model, prefix); is {
				if tokens, ok := find(section, rest); ok {
					return tokens, true
				}
			}
		}
	}
	return 0, false
}

func hostOf(baseURL string) string {
	u, err := url.Parse(baseURL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

func sectionOf(profile, host string) string {
	for name, section := range hosts {
		if host == name || strings.HasSuffix(host, "."+name) {
			return section
		}
	}
	return profiles[profile]
}

// Private reports whether an endpoint is on this machine or in a private network.
func Private(baseURL string) bool { return isPrivate(hostOf(baseURL)) }

// isPrivate reports whether an endpoint is on this machine or in a private network. Servers of
// open models run there, and some give their models the names of OpenAI's.
func isPrivate(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsUnspecified()
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc([]string{".local", ".internal", ".localhost", ".lan",
		".home.arpa"},
		func(end string) bool { return strings.HasSuffix(host, end) })
}

var (
	dated   = regexp.MustCompile(`-(20\d{2}-?[01]\d-?[0-3]\d|latest)$`)
	routing = regexp.MustCompile(`:(nitro|floor|online|exacto)$`) // of OpenRouter: the model is the same
)

// find looks a model up in a section: first by its exact name, then without the parts that do
// not affect the window. A name without a date also matches dated names, if these all have the
// same window.
func find(section, model string) (int, bool) {
	names := []string{model}
	switch section {
	case "gemini":
		names = append(names, strings.TrimPrefix(model, "models/"))
	case "openrouter":
		names = append(names, routing.ReplaceAllString(model, ""))
	}
	for _, name := range names {
		if n, ok := table()[section+"/"+name]; ok {
			return n, true
		}
	}
	bare := dated.ReplaceAllString(names[len(names)-1], "")
	if n, ok := table()[section+"/"+bare]; ok {
		return n, true
	}
	found := 0
	for name, n := range table() {
		if dated.MatchString(name) && dated.ReplaceAllString(name, "") == section+"/"+bare {
			if found != 0 && found != n {
				return 0, false
			}
			found = n
		}
	}
	return found, found != 0
}
