// Package operate is what operators and clients see and change: lists and views of messages and turns,
// cancelling and retrying, schedules, tokens, webhooks, MCP servers, retention and checks. It
// cannot write a journal or make a grant.
package operate

import (
	"context"

	"turnkeeper/storage"
	"turnkeeper/storage/internal/pg"
)

// A Store is the database as an operator has it.
type Store struct {
	*storage.DB
	*Views
	*Reports
	*Control
	*Responses
	*TokenStore
	*WebhookStore
	*MCPStore
}

// Open connects as storage.Open does.
func Open(ctx context.Context, o storage.Options) (*Store, error) {
	db, err := storage.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return New(db), nil
}

// New returns the store of a database that is open. It is closed with the database.
func New(db *storage.DB) *Store {
	core := db.Core()
	views := &Views{core, looksAt}
	return &Store{
		db, views, &Reports{core, views}, &Control{core, views}, &Responses{db, core}, &TokenStore{core}, &WebhookStore{core}, &MCPStore{core},
	}
}

// Views reads messages, turns and replies.
type Views struct {
	db      *pg.DB
	looksAt int32 // most that a search looks at; the constant, but for tests
}

// Reports reads the state of the whole.
type Reports struct {
	db    *pg.DB
	views *Views
}

// Control changes what is to be done.
type Control struct {
	db    *pg.DB
	views *Views
}

// Responses keeps the messages that come by the Responses API.
type Responses struct {
	inbox *storage.DB
	db    *pg.DB
}

// A TokenStore keeps the tokens of the HTTP API and the sessions of its page.
type TokenStore struct{ db *pg.DB }

// A WebhookStore keeps webhooks and their deliveries.
type WebhookStore struct{ db *pg.DB }

// An MCPStore keeps what is known of MCP servers, and the logins to them.
type MCPStore struct{ db *pg.DB }
