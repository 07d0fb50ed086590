package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A floor runs the standard turn on two plain tables. It has no lease, no queue and no second process: it is the
// least that stores as much. It commits the message, and then each answer, each pair of results and the reply by
// itself, or, atEnd, all of them in one transaction at the end.
type floor struct {
	pool   *pgxpool.Pool
	model  asker
	newest atomic.Int64 // id of a message
	atEnd  bool
}

const lastStep = 6 // the reply; the message is step 1

const floorTables = `
	create table if not exists floor_messages (id bigint primary key, body text not null, reply text);
	create table if not exists floor_steps (message_id bigint not null, step integer not null, content text not null, primary key (message_id, step))`

func startFloor(ctx context.Context, s setup) (part, error) { return newFloor(ctx, s, false) }

func startEndFloor(ctx context.Context, s setup) (part, error) { return newFloor(ctx, s, true) }

func newFloor(ctx context.Context, s setup, atEnd bool) (part, error) {
	pool, err := newPool(ctx, s.Database)
	if err != nil {
		return nil, err
	}
	f := &floor{pool: pool, model: newAsker(s.Model), atEnd: atEnd}
	var newest int64
	_, err = pool.Exec(ctx, floorTables)
	if err == nil {
		err = pool.QueryRow(ctx, "select coalesce(max(id), 0) from floor_messages").Scan(&newest)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	f.newest.Store(newest)
	return f, nil
}

func (f *floor) run(ctx context.Context, l load) (outcome, error) {
	return l.run(ctx, func(ctx context.Context, _, _ int) (rest, error) { return nil, f.turn(ctx) })
}

func (f *floor) url() string { return "" }

func (f *floor) close() error {
	f.pool.Close()
	return nil
}

func (f *floor) turn(ctx context.Context) error {
	message := f.newest.Add(1)
	if _, err := f.pool.Exec(ctx, "insert into floor_messages (id, body) values ($1, 'go')", message); err != nil {
		return err
	}
	var waiting pgx.Batch
	return f.model.turn(ctx, func(step int, text string) error {
		if step == lastStep {
			waiting.Queue("update floor_messages set reply = $2 where id = $1", message, text)
		} else {
			waiting.Queue("insert into floor_steps (message_id, step, content) values ($1, $2, $3)", message, step, text)
		}
		if f.atEnd && step < lastStep {
			return nil
		}
		commit := waiting
		waiting = pgx.Batch{}
		return f.pool.SendBatch(ctx, &commit).Close() // in one transaction
	})
}

// An asker sends the requests of the standard turn to the model server.
type asker struct {
	url    string
	client *http.Client
}

func newAsker(url string) asker {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented to be one
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = maxSlots, maxSlots, maxSlots
	return asker{url: url, client: &http.Client{Transport: transport}}
}

// turn runs the three rounds, and calls store for each answer and each pair of results, with steps 2
// to lastStep.
func (a asker) turn(ctx context.Context, store func(step int, text string) error) error {
	for round := 1; ; round++ {
		answer, err := a.ask(ctx, round)
		if err != nil {
			return err
		}
		if err := store(round*2, answer); err != nil || round*2 == lastStep {
			return err
		}
		if err := store(round*2+1, noopResult+noopResult); err != nil {
			return err
		}
	}
}

// ask calls the model server with a request like the real one.
func (a asker) ask(ctx context.Context, round int) (string, error) {
	var body bytes.Buffer
	body.WriteString(
		`{"model":"instant","stream":true,"messages":[{"role":"system","content":"Call the tools, then answer."},{"role":"user","content":"floor"}`)
	for r := 1; r < round; r++ {
		fmt.Fprintf(&body, `,{"role":"assistant","content":null,"tool_calls":%s}`, calls(r))
		for i := range 2 {
			fmt.Fprintf(&body, `,{"role":"tool","tool_call_id":"call_%d_%d","content":%q}`, r, i, noopResult)
		}
	}
	body.WriteString(`]}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/chat/completions", &body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(req)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the model server answered %s", response.Status)
	}
	return string(answer), err
}
