package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"turnkeeper"
	"turnkeeper/internal/pause"
)

// A streamed turn is the standard turn with its answers streamed in pieces of 100 bytes, one every
// 5 ms, 200 ms per round.

// watchers is the number of HTTP clients that follow a watched turn.
const watchers = 10

// follow starts watchers of a message's turn. rest waits until each has received its end.
func (s *sender) follow(ctx context.Context, watchers int, message int64) (rest, error) {
	turn, err := s.turnOf(ctx, message) // also without watchers, so that both kinds include it
	if err != nil {
		return nil, err
	}
	var group errgroup.Group
	for i := range watchers {
		group.Go(func() error {
			events, err := s.watchTurn(ctx, turn)
			if i == 0 {
				s.events.Store(int64(events))
			}
			return err
		})
	}
	return group.Wait, nil
}

// turnOf waits until a message has its turn.
func (s *sender) turnOf(ctx context.Context, message int64) (turn int64, err error) {
	for {
		resp, err := s.get(ctx, fmt.Sprintf("/v1/messages/%d", message), "application/json")
		if err != nil {
			return 0, err
		}
		var m struct {
			Turn int64 `json:"turn_id"` // null, which is left as 0: none yet
		}
		err = json.NewDecoder(resp.Body).Decode(&m)
		_ = resp.Body.Close()
		if err != nil || m.Turn != 0 {
			return m.Turn, err
		}
		if err := pause.For(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// get sends a request to the worker's API. The caller closes the body.
func (s *sender) get(ctx context.Context, path, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := s.web.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the worker's API answered %s to %s", resp.Status, path)
	}
	return resp, nil
}

// watchTurn follows a turn to its end.
func (s *sender) watchTurn(ctx context.Context, turn int64) (events int, err error) {
	resp, err := s.get(ctx, fmt.Sprintf("/v1/turns/%d/events", turn), "text/event-stream")
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	over := false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if kind, found := strings.CutPrefix(lines.Text(), "event: "); found {
			events++
			over = kind == string(turnkeeper.EventTurnComplete)
		}
	}
	if err := lines.Err(); err != nil || over {
		return events, err
	}
	return events, fmt.Errorf("a watcher got %d events of turn %d, but not its end", events, turn)
}

// The model "streamed" sends this number of pieces per round, at this interval.
const (
	streamedPieces = 40
	streamedEvery  = 5 * time.Millisecond
)

// stream streams the answer of a round: text in pieces, then its calls.
func (m *model) stream(w http.ResponseWriter, r *http.Request, round int, usage string) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	tick := time.NewTicker(streamedEvery)
	defer tick.Stop()
	piece := fmt.Appendf(nil,
		`data: {"id":"c","object":"chat.completion.chunk","model":"streamed","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`+"\n\n",
		strings.Repeat("ten bytes ", 10))
	for range streamedPieces {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		_, _ = w.Write(piece)
		_ = control.Flush()
	}
	_, _ = w.Write(streamed(round, usage))
}
