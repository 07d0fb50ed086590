package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/presence"
	"turnkeeper/storage/storagetest"
)

// TestStoppedAtOnce checks that a worker told twice to stop logs "turn handed back" only if the turn is queued again,
// and that the worker counts as stopped, not lost, only then.
func TestStoppedAtOnce(t *testing.T) {
	asked := make(chan struct{}, 10)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // the worker asks for the context window of the model
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only after reading the body
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer model.Close()
	cfg := settings(t, "---\nmodel: slow/m\n---\nYou wait.\n")
	cfg.Providers = map[string]config.Provider{"slow": {Name: "slow", BaseURL: model.URL + "/v1"}}
	store := storagetest.Open(t, cfg.DatabaseURL.Reveal())

	core, logged := observer.New(zap.InfoLevel)
	soft, askToEnd := context.WithCancel(context.Background())
	hard, dropAll := context.WithCancel(context.Background())
	defer dropAll()
	defer askToEnd()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- app.RunWorker(soft, hard, cfg, zap.New(core), func(app.Ready) { close(ready) })
	}()
	<-ready
	id, err := store.Enqueue(t.Context(), turnkeeper.Submission{Agent: "helper", Body: "Hello"})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	askToEnd()
	dropAll()
	err = <-ended
	if err == nil || !strings.Contains(err.Error(), "turns that were not handed back continue on other workers") {
		t.Errorf("the worker ended with %v", err)
	}
	told := logged.FilterMessage("turn handed back").Len() > 0
	message, err := store.Message(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	view, err := store.ViewTurn(t.Context(), message.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	if told && view.Turn.State != turnkeeper.TurnQueued {
		t.Errorf("the turn is %s, and the log says that it was handed back", view.Turn.State)
	}
	workers, err := store.Workers(t.Context())
	if err != nil || len(workers) != 1 {
		t.Fatalf("%+v, %v", workers, err)
	}
	if ended := workers[0].State() == presence.Stopped; ended != told {
		t.Errorf("the worker is %s, and that its turn was handed back is %t", workers[0].State(), told)
	}
}
