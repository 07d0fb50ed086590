package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A floor runs the standard turn on two plain tables: the message, then a commit for each answer
// and each pair of results, then the reply. It has no lease, no queue and no second process: it is
// the least that stores as much.
type floor struct {
	pool   *pgxpool.Pool
	url    string
	client *http.Client
}

func newFloor(ctx context.Context, pool *pgxpool.Pool, url string) (*floor, error) {
	_, err := pool.Exec(ctx, `
		create table floor_messages (id bigint generated always as identity primary key, body text not null, reply text);
		create table floor_steps (message_id bigint not null, step integer not null, content text not null, primary key (message_id, step))`)
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented to be one
	transport.MaxIdleConnsPerHost = 100
	return &floor{pool: pool, url: url, client: &http.Client{Transport: transport}}, err
}

func (f *floor) turn(ctx context.Context) error {
	var id int64
	if err := f.pool.QueryRow(ctx, "insert into floor_messages (body) values ($1) returning id", "go").Scan(&id); err != nil {
		return err
	}
	for round := 1; round <= 2; round++ {
		answer, err := f.ask(ctx, round)
		if err != nil {
			return err
		}
		for step, content := range []string{answer, noopResult + noopResult} {
			_, err := f.pool.Exec(ctx, "insert into floor_steps (message_id, step, content) values ($1, $2, $3)", id, round*2+step, content)
			if err != nil {
				return err
			}
		}
	}
	answer, err := f.ask(ctx, 3)
	if err != nil {
		return err
	}
	_, err = f.pool.Exec(ctx, "update floor_messages set reply = $2 where id = $1", id, answer)
	return err
}

// ask calls the model server with a request like the real one.
func (f *floor) ask(ctx context.Context, round int) (string, error) {
	var body bytes.Buffer
	body.WriteString(`{"model":"instant","stream":true,"messages":[{"role":"system","content":"Call the tools, then answer."},{"role":"user","content":"floor"}`)
	for r := 1; r < round; r++ {
		fmt.Fprintf(&body, `,{"role":"assistant","content":null,"tool_calls":%s}`, calls(r))
		for i := range 2 {
			fmt.Fprintf(&body, `,{"role":"tool","tool_call_id":"call_%d_%d","content":%q}`, r, i, noopResult)
		}
	}
	body.WriteString(`]}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/chat/completions", &body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := f.client.Do(req)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return string(answer), err
}
