package openai_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
)

// Concurrent turns use their connections again, also if the stream ends a while after [DONE].
func TestConnectionsAreReused(t *testing.T) {
	const turns, rounds = 30, 5
	var arrived sync.WaitGroup
	var connections atomic.Int64
	model := inferencetest.NewServer().Then(func(inferencetest.Recorded) inferencetest.Reply {
		return func(x *inferencetest.Exchange) {
			arrived.Done()
			arrived.Wait() // all requests of a round are open at once
			inferencetest.Text("hello")(x)
			time.Sleep(time.Millisecond)
		}
	})
	server := httptest.NewUnstartedServer(model)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := newClient(t, openai.Config{Name: "p", BaseURL: server.URL})
	request := inference.Request{Model: "m", Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}}}
	for range rounds {
		arrived.Add(turns)
		var ended sync.WaitGroup
		for range turns {
			ended.Go(func() {
				if _, err := client.Generate(t.Context(), request, nil); err != nil {
					t.Error(err)
				}
			})
		}
		ended.Wait()
	}
	if n := connections.Load(); n > turns {
		t.Errorf("%d turns with %d rounds each opened %d connections", turns, rounds, n)
	}
}
