package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnkeeper/inference"
)

// limited gives a provider its own limit on one model call; 0: none of its own.
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

var errProviderLimit = errors.New("the provider's own timeout")

func (p limitedProvider) Generate(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, errProviderLimit)
	defer cancel()
	response, err := p.Provider.Generate(ctx, req, onDelta)
	if err != nil && errors.Is(context.Cause(ctx), errProviderLimit) {
		return response, &inference.Error{
			Class: inference.ClassTransport, Provider: p.name, Model: req.Model,
			Detail: fmt.Sprintf("no whole answer within %s", p.limit), Err: errProviderLimit,
		}
	}
	return response, err
}
