package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/config"
)

// A ProviderCheck is the result of asking a provider for its models.
type ProviderCheck struct {
	Name    string
	BaseURL string
	OK      bool
	Unasked bool // not asked, because its key is missing here
	Detail  string
	Advice  string // what to do; empty if OK

	models []openai.Model
	lists  bool
}

// Lacks reports whether the provider lists its models without "provider/model".
func (c ProviderCheck) Lacks(name string) bool {
	provider, model, _ := strings.Cut(name, "/")
	return c.lists && provider == c.Name && !openai.Lists(c.models, model)
}

// Nearest returns at most three listed models, as "provider/model", whose names start like the given one.
func (c ProviderCheck) Nearest(name string) (near []string) {
	const few, letters = 3, 4
	_, model, _ := strings.Cut(name, "/")
	shared := func(m openai.Model) (n int) {
		own := strings.TrimPrefix(m.Name, "models/")
		for n < min(len(own), len(model)) && own[n] == model[n] {
			n++
		}
		return n
	}
	all := slices.Clone(c.models)
	slices.SortStableFunc(all, func(a, b openai.Model) int { return shared(b) - shared(a) })
	for _, m := range all[:min(few, len(all))] {
		if shared(m) >= letters {
			near = append(near, c.Name+"/"+strings.TrimPrefix(m.Name, "models/"))
		}
	}
	return near
}

// checkTime is the timeout of checking a provider and of asking for context windows at the start.
const checkTime = 5 * time.Second

var errNoAnswer = fmt.Errorf("no answer within %s", checkTime)

// CheckProviders asks all configured providers for their models, in parallel.
func CheckProviders(ctx context.Context, cfg *config.Config) []ProviderCheck {
	masker := cfg.Masker()
	names := slices.Sorted(maps.Keys(cfg.Providers))
	checks := make([]ProviderCheck, len(names)+1)
	checks[0] = ProviderCheck{Name: demoProvider, OK: true, Detail: "built in: a script, not a language model"}
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			check := ProviderCheck{Name: name, BaseURL: cfg.Providers[name].BaseURL, Unasked: true}
			if secret, lacks := cfg.Lacks("providers." + name + "."); lacks {
				check.Detail, check.Advice = "not asked: "+secret.Problem,
					"set it here too: a worker has its own environment"
			} else {
				check = reach(ctx, cfg.Providers[name])
			}
			check.BaseURL, check.Detail = masker.String(check.BaseURL), masker.String(check.Detail)
			checks[i+1] = check
		})
	}
	asking.Wait()
	return checks
}

func reach(ctx context.Context, p config.Provider) ProviderCheck {
	check := ProviderCheck{Name: p.Name, BaseURL: p.BaseURL}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, errNoAnswer)
	defer cancel()
	client, err := newClient(p, checkTime, nil, zap.NewNop())
	if err != nil {
		check.Detail, check.Advice = err.Error(), "correct providers."+p.Name+" in the config file"
		return check
	}
	defer client.Close()
	check.models, check.lists, err = client.Models(ctx)
	if failure, ok := errors.AsType[*inference.Error](err); ok && failure.Status == http.StatusNotImplemented {
		err = nil // like the 404 and 405 of servers without a list: calls may work all the same
	}
	if err != nil {
		check.Detail, check.Advice = reachFailure(err, p)
		return check
	}
	check.OK = true
	switch {
	case check.lists:
		check.Detail = fmt.Sprintf("answers; models listed: %d", len(check.models))
	case len(check.models) > 0:
		check.Detail = "answers"
	default:
		check.Detail = "answers, but cannot list models: they are not checked"
	}
	return check
}

// reachFailure returns why a provider cannot be used, and what to do.
func reachFailure(err error, p config.Provider) (detail, advice string) {
	setting := "providers." + p.Name + "."
	failure, ok := errors.AsType[*inference.Error](err)
	if !ok {
		failure = &inference.Error{Class: inference.ClassTransport, Detail: err.Error()}
	}
	text := failure.Detail
	if failure.Status > 0 {
		text = fmt.Sprintf("HTTP %d, %s", failure.Status, failure.Detail)
	}
	switch failure.Class {
	case inference.ClassAuth:
		if !p.APIKey.IsSet() {
			return "requires a key, and none is set: " + text, "set " + setting +
				"api_key_env, and the variable that it names"
		}
		return "refuses the key: " + text, "replace the key of " + setting +
			"api_key_env or api_key_file: it is wrong, expired, or lacks permission; or correct base_url, if the key is for another service"
	case inference.ClassTransport:
		return "cannot be reached: " + text, "start the server, or correct " + setting +
			"base_url; then check the network and proxies"
	case inference.ClassQuota:
		return "has no credit left for this key: " + text, "add credit to the account, or use another key"
	case inference.ClassRateLimited, inference.ClassOverloaded:
		return "is too busy to answer: " + text, "try again later"
	default:
		return "refuses to list its models: " + text, "correct " + setting + "base_url, query and headers"
	}
}
