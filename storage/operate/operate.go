// Package operate reads and changes what operators and clients need: lists and views of messages and
// turns, cancelling and retrying, schedules, tokens, webhooks, MCP servers, retention and checks. It
// cannot write a journal or make a grant.
package operate

import (
	"context"

	"turnkeeper/storage"
	"turnkeeper/storage/internal/pg"
)

// A Store gives operators and clients access to the database.
type Store struct {
	*storage.DB
	*Views
	*Reports
	*Control
	*Responses
	*TokenStore
	*WebhookStore
	*MCPStore
	*AskStore
}

// Open connects as storage.Open does.
func Open(ctx context.Context, o storage.Options) (*Store, error) {
	db, err := storage.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return New(db), nil
}

// New returns the store of an open database. Closing the database closes it.
func New(db *storage.DB) *Store {
	core := db.Core()
	views := &Views{core, maxSearched}
	return &Store{
		db, views, &Reports{core, views}, &Control{core, views}, &Responses{db, core}, &TokenStore{core},
		&WebhookStore{core}, &MCPStore{core}, &AskStore{core},
	}
}

// Views reads messages, turns and replies.
type Views struct {
	db          *pg.DB
	maxSearched int32 // the constant of the same name, except in tests
}

// Reports reads the state of the installation as a whole.
type Reports struct {
	db    *pg.DB
	views *Views
}

// Control changes messages, turns, schedules and agents.
type Control struct {
	db    *pg.DB
	views *Views
}

// Responses stores the messages sent by the Responses API.
type Responses struct {
	inbox *storage.DB
	db    *pg.DB
}

// A TokenStore stores the tokens of the HTTP API and the sessions of its page.
type TokenStore struct{ db *pg.DB }

// A WebhookStore stores webhooks and their deliveries.
type WebhookStore struct{ db *pg.DB }

// An MCPStore stores the tools of MCP servers and the logins to them.
type MCPStore struct{ db *pg.DB }
