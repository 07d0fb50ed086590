// Package faultpoint lets a test pause a program at its fault points. The program sends the test an
// HTTP request each time it reaches one of the named points, and continues when the test answers.
// Meanwhile the test kills it, stops it, or cuts its connections.
package faultpoint

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"turnkeeper/internal/fault"
)

// The environment variables of a program with a hook.
const (
	// URLVariable has the URL of the hook server.
	URLVariable = "FAULT_URL"
	// PointsVariable has the labels of the points, separated by commas; "*" means all.
	PointsVariable = "FAULT_POINTS"
)

// StatusPanic is the answer that makes the program panic at the point.
const StatusPanic = http.StatusTeapot

// Hook returns the hook that the environment variables ask for, or nil.
func Hook() fault.Hook {
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

// At sends a request for the point and waits for the answer, even if ctx ends: a process that is
// killed or stopped does not notice its own cancellation either. Without a server, At returns at once.
func (a *asker) At(ctx context.Context, label string) {
	if !a.points[label] && !a.points["*"] {
		return
	}
	question := url.Values{"point": {label}, "pid": {strconv.Itoa(os.Getpid())}}
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost,
		a.address+"?"+question.Encode(), http.NoBody)
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
