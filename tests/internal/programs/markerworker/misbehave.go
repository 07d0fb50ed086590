package main

import (
	"context"
	"io"
	"runtime"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// A behaviour holds the arguments of the tool misbehave.
type behaviour struct {
	How string `json:"how"`
}

// misbehave returns a Go tool that misbehaves as its argument says. With a timeout it is for behaviours
// that end by it, without one for behaviours that take long on a slow machine.
func misbehave(name string, timeout time.Duration) tools.Tool {
	spec := tools.Spec{Name: name, Description: "Misbehaves.", Effect: turnkeeper.EffectNone, Timeout: timeout}
	return tools.New(spec, func(_ context.Context, _ tools.Call, b behaviour) (tools.Result, error) {
		switch b.How {
		case "hang":
			select {}
		case "hang a while":
			time.Sleep(3 * misbehaveTimeout) //nolint:forbidigo // it ignores its context
			return tools.Result{Text: "too late"}, nil
		case "panic":
			panic("nothing works")
		case "end the goroutine":
			runtime.Goexit()
		case "endless":
			return tools.Result{Body: forever{}}, nil
		case "gigabyte":
			return tools.Result{Body: io.LimitReader(forever{}, 1<<30)}, nil
		case "trickle":
			return tools.Result{Body: trickle{}}, nil
		case "hanging body":
			return tools.Result{Body: hanging{}}, nil
		case "large text":
			return tools.Result{Text: strings.Repeat("x", 64<<20)}, nil
		case "nul":
			return tools.Result{Text: "a\x00b\x00"}, nil
		case "broken utf-8":
			return tools.Result{Text: "a\xff\xfeb\xc3"}, nil
		case "surrogates":
			return tools.Result{Text: `{"a":"\ud800"}` + "\xed\xa0\x80."}, nil
		case "deep":
			return tools.Result{Text: strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
				MediaType: "application/json"}, nil
		}
		return tools.Result{Text: "no such behaviour", IsError: true}, nil
	})
}

// misbehaveTimeout is short, because behaviours that end by it use all of it.
const misbehaveTimeout = 500 * time.Millisecond

type forever struct{}

func (forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'y'
	}
	return len(p), nil
}

type trickle struct{}

func (trickle) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond) //nolint:forbidigo // it is slow
	return copy(p, "y"), nil
}

type hanging struct{}

func (hanging) Read([]byte) (int, error) { select {} }
