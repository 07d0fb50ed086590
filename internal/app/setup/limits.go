package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnkeeper/inference"
)

// limited adds a timeout to each model call of a provider; 0: no timeout.
func limited(p inference.Provider, name string, limit time.Duration) inference.Provider {
	if limit <= 0 {
		return p
	}
	return limitedProvider{p, name, limit}
}

type limitedProvider struct {
	inference.Provider
	name  string
	limit time.Duration
}

// Form returns how the provider encodes requests.
func (p limitedProvider) Form() string { return inference.FormOf(p.Provider) }

var errProviderLimit = errors.New("timeout of the provider")

func (p limitedProvider) Generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, errProviderLimit)
	defer cancel()
	response, err := p.Provider.Generate(ctx, req, onDelta)
	if err != nil && errors.Is(context.Cause(ctx), errProviderLimit) {
		return response, &inference.Error{
			Class: inference.ClassTransport, Provider: p.name, Model: req.Model,
			Detail: fmt.Sprintf("no complete answer within %s", p.limit), Err: errProviderLimit,
		}
	}
	return response, err
}
