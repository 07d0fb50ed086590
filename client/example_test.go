package client_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/client"
)

// pool is a connection pool; a program creates it with pgxpool.New.
var pool *pgxpool.Pool

// The order and the message about it are committed together, or neither is.
func ExampleEnqueue() {
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id) values (17)"); err != nil {
			return err
		}
		_, err := client.Enqueue(ctx, tx, turnkeeper.Submission{
			Agent: "clerk", Body: "Order 17 came in; check the stock.", Conversation: "order-17", Key: "order-17",
		})
		return err
	})
	if err != nil {
		panic(err)
	}
}

// Send a question and wait for the answer.
func ExampleWait() {
	ctx := context.Background()
	id, err := client.Enqueue(ctx, pool, turnkeeper.Submission{Agent: "clerk", Body: "What is in stock?"})
	if err != nil {
		panic(err)
	}
	reply, err := client.Wait(ctx, pool, id)
	if err != nil {
		panic(err)
	}
	fmt.Println(reply.Outcome, reply.Body)
}

// Each reply is handled once: the transaction that handles a reply also stores its id.
func ExampleOutbox() {
	ctx := context.Background()
	var place turnkeeper.ReplyID
	if err := pool.QueryRow(ctx, "select reply_id from outbox_place").Scan(&place); err != nil {
		panic(err)
	}
	for reply, err := range client.Outbox(ctx, pool, place, client.Filter{Agent: "clerk"}) {
		if err != nil {
			panic(err)
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into answers (message_id, body) values ($1, $2)", reply.MessageID,
				reply.Body); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "update outbox_place set reply_id = $1", reply.ID)
			return err
		})
		if err != nil {
			panic(err)
		}
		if reply.Conversation == "last" { // a real program continues
			break
		}
	}
}

// Read one page, for a program that runs periodically.
func ExampleReplies() {
	replies, err := client.Replies(context.Background(), pool, 0, 100, client.Filter{})
	if err != nil {
		panic(err)
	}
	for _, reply := range replies {
		fmt.Println(reply.MessageID, reply.Outcome)
	}
}
