package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/internal/pause"
	"turnkeeper/storage"
)

// watchers is the number of HTTP clients that follow a watched turn, in the process that runs it.
const watchers = 10

// A Watched holds the cost of watching a turn: the standard turn, its answers streamed in pieces of
// 100 bytes, one every 5 ms, 200 ms per round.
type Watched struct {
	Alone   Latency `json:"streamed_enqueue_to_reply"`
	Watched Latency `json:"watched_enqueue_to_reply"`
	Ratio   float64 `json:"watched_ratio"` // median of the ratios of neighbouring blocks
	Events  int     `json:"events_of_a_watched_turn"`
}

// watchBlock returns how many turns of one kind are measured before the other kind.
func (b *bench) watchBlock() int { return min(4, max(b.Watched/2, 1)) }

// measureWatched measures alternating blocks of turns with and without watchers. The order within
// a pair of blocks alternates too.
func (b *bench) measureWatched(ctx context.Context, r *Report) error {
	if b.Watched == 0 {
		return nil
	}
	b.Progress(fmt.Sprintf("a streamed turn, alone and with %d watchers", watchers))
	if _, err := b.streamedTurns(ctx, watchers); err != nil { // warm up
		return err
	}
	var alone, watched []time.Duration
	var ratios []float64
	for pair := range max(b.Watched/(2*b.watchBlock()), 1) {
		kinds := []int{0, watchers}
		if pair%2 == 1 {
			slices.Reverse(kinds)
		}
		took := map[int][]time.Duration{}
		for _, kind := range kinds {
			var err error
			if took[kind], err = b.streamedTurns(ctx, kind); err != nil {
				return err
			}
		}
		alone, watched = append(alone, took[0]...), append(watched, took[watchers]...)
		ratios = append(ratios, float64(latencyOf(took[watchers]).P50)/float64(latencyOf(took[0]).P50))
	}
	slices.Sort(ratios)
	r.Watched = Watched{Alone: latencyOf(alone), Watched: latencyOf(watched), Ratio: ratios[len(ratios)/2], Events: b.watchedEvents}
	return nil
}

func (b *bench) streamedTurns(ctx context.Context, watchers int) (took []time.Duration, err error) {
	for range b.watchBlock() {
		began := time.Now()
		if err := b.streamedTurn(ctx, watchers); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		if err := pause.For(ctx, b.Pause); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// streamedTurn sends a message, starts the watchers of its turn, and waits for the reply.
func (b *bench) streamedTurn(ctx context.Context, watchers int) error {
	doorbells, cancel := b.notifier.Subscribe(storage.TopicTurns)
	defer cancel()
	body := b.model.expect()
	id, err := b.store.Enqueue(ctx, turnkeeper.Submission{Agent: "streamed", Conversation: body, Body: body})
	if err != nil {
		return err
	}
	turn, err := b.turnOf(ctx, id) // also without watchers, so that both kinds include it
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	faults := make([]error, watchers)
	for i := range watchers {
		group.Go(func() {
			var events int
			events, faults[i] = b.watchTurn(ctx, turn)
			if i == 0 {
				b.watchedEvents = events
			}
		})
	}
	err = b.awaitReply(ctx, id, doorbells)
	group.Wait()
	return errors.Join(append(faults, err)...)
}

// turnOf waits until a message has its turn.
func (b *bench) turnOf(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.TurnID, error) {
	for {
		m, err := b.store.Message(ctx, id)
		if err != nil || m.TurnID != 0 {
			return m.TurnID, err
		}
		if err := pause.For(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// watchTurn follows a turn to its end.
func (b *bench) watchTurn(ctx context.Context, turn turnkeeper.TurnID) (events int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/turns/%d/events", b.api, turn), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := b.web.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("a watcher got status %s", resp.Status)
	}
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
func (m *model) stream(w http.ResponseWriter, r *http.Request, round int) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	tick := time.NewTicker(streamedEvery)
	defer tick.Stop()
	piece := fmt.Appendf(nil, `data: {"id":"c","object":"chat.completion.chunk","model":"streamed","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`+"\n\n",
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
	_, _ = w.Write(streamed(round))
}
