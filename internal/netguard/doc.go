// Package netguard decides which addresses a process may connect to on behalf of others: public
// ones, and those an operator has allowed. It looks at the address that is about to be
// connected to, after the name was looked up: what a name meant a moment before does not count.
//
// A Dialer is safe for concurrent use.
package netguard
