// Package faultpoint lets a test pause a program at any of its labelled points: the
// program asks the test, over HTTP, each time that it comes by one of the points
// that were named to it, and goes on when the test answers. Meanwhile the test
// kills it, stops it, or cuts its connections.
package faultpoint

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"turnkeeper/storage"
)

// The variables of a program that has a hook.
const (
	// URLVariable holds the address that is asked.
	URLVariable = "FAULT_URL"
	// PointsVariable holds the labels, with commas; "*" means all.
	PointsVariable = "FAULT_POINTS"
)

// StatusPanic is the answer that makes the program panic at the point.
const StatusPanic = http.StatusTeapot

// Hook is what the environment asks for; nil: nothing.
func Hook() storage.FaultHook {
	address := os.Getenv(URLVariable)
	if address == "" {
		return nil
	}
	points := map[string]bool{}
	for point := range strings.SplitSeq(os.Getenv(PointsVariable), ",") {
		points[point] = true
	}
	return &asker{address, points}
}

type asker struct {
	address string
	points  map[string]bool
}

// At asks and waits for the answer, whatever becomes of ctx: a process that is
// killed or stopped does not notice its own cancellation either. A test that is
// gone lets everything pass.
func (a *asker) At(ctx context.Context, label string) {
	if !a.points[label] && !a.points["*"] {
		return
	}
	question := url.Values{"point": {label}, "pid": {strconv.Itoa(os.Getpid())}}
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, a.address+"?"+question.Encode(), http.NoBody)
	if err != nil {
		panic(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	_ = response.Body.Close()
	if response.StatusCode == StatusPanic {
		panic(errPlanned)
	}
}

var errPlanned = errors.New("the test wants a panic at this point")
